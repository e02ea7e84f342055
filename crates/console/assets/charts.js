// Drawings: a part of a map as a strip or a ring, and a line of the last hour.

import { colour, isDark } from "./colours.js";

function prepare(canvas) {
  const scale = devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return { context, width, height };
}

// Lines across what may not be written, denser across what may not be read either.
function hatch(context, x, y, width, height, state) {
  if (state === "online") return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = isDark() ? "rgb(0 0 0 / 0.75)" : "rgb(255 255 255 / 0.85)";
  context.lineWidth = state === "offline" ? 3 : 1.5;
  const step = state === "offline" ? 7 : 12;
  for (let at = x - height; at < x + width; at += step) {
    context.beginPath();
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
    context.stroke();
  }
  context.restore();
}

// The pieces of a window, seen through `view` ({first, count}), with a mark at a position.
export function strip(canvas, pieces, view, { mark = null, brush = null } = {}) {
  const { context, width, height } = prepare(canvas);
  const x = (position) => ((position - view.first) / view.count) * width;
  for (const piece of pieces) {
    const left = Math.max(0, x(piece.first));
    const right = Math.min(width, x(piece.first + piece.count));
    if (right <= 0 || left >= width) continue;
    // A gap between entries that are wide enough to be told apart.
    const gap = piece.entry && right - left > 5 ? 1 : 0;
    const all = piece.shards.reduce((sum, part) => sum + part.count, 0);
    let top = 0;
    for (const part of piece.shards) {
      const part_height = (part.count / all) * height;
      context.fillStyle = colour(part.shard);
      context.fillRect(left, top, Math.max(right - left - gap, 0.6), part_height);
      top += part_height;
    }
    hatch(context, left, 0, right - left - gap, height, piece.state);
    if (piece.entry?.lock) {
      context.fillStyle = isDark() ? "#fff" : "#000";
      context.fillRect(left, 0, Math.max(right - left - gap, 1), 4);
    }
  }
  if (mark !== null) {
    const at = Math.min(width - 2, Math.max(2, x(mark + 0.5)));
    context.fillStyle = isDark() ? "#fff" : "#000";
    context.fillRect(at - 1, 0, 2, height);
    context.beginPath();
    context.moveTo(at - 7, 0);
    context.lineTo(at + 7, 0);
    context.lineTo(at, 10);
    context.fill();
  }
  if (brush) {
    context.strokeStyle = isDark() ? "#fff" : "#000";
    context.lineWidth = 2;
    const left = x(brush.first);
    context.strokeRect(left + 1, 1, Math.max(x(brush.first + brush.count) - left - 2, 3), height - 2);
  }
}

export function ring(canvas, pieces, total, mark = null) {
  const { context, width, height } = prepare(canvas);
  const outer = Math.min(width, height) / 2 - 12;
  // Before it is laid out there is nothing to draw on.
  if (outer <= 0) return;
  const inner = outer * 0.62;
  const angle = (position) => (position / total) * 2 * Math.PI - Math.PI / 2;
  context.translate(width / 2, height / 2);
  for (const piece of pieces) {
    const [from, to] = [angle(piece.first), angle(piece.first + piece.count)];
    const gap = piece.entry && (to - from) * outer > 6 ? 1.2 / outer : 0;
    let radius = inner;
    const all = piece.shards.reduce((sum, part) => sum + part.count, 0);
    for (const part of piece.shards) {
      const next = radius + (part.count / all) * (outer - inner);
      context.beginPath();
      context.arc(0, 0, next, from, to - gap);
      context.arc(0, 0, radius, to - gap, from, true);
      context.fillStyle = colour(part.shard);
      context.globalAlpha = { online: 1, read_only: 0.6, offline: 0.25 }[piece.state];
      context.fill();
      context.globalAlpha = 1;
      radius = next;
    }
  }
  context.fillStyle = isDark() ? "#e7edf3" : "#1b2128";
  if (mark !== null) {
    const at = angle(mark + 0.5);
    context.beginPath();
    context.arc(Math.cos(at) * (outer + 6), Math.sin(at) * (outer + 6), 6, 0, 2 * Math.PI);
    context.fill();
  }
  context.font = "600 20px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText(total.toLocaleString("en"), 0, 0);
  context.font = "14px system-ui, sans-serif";
  context.fillText("buckets", 0, 20);
}

// The position on a ring below a point, or null.
export function ringAt(canvas, event, total) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left - box.width / 2;
  const y = event.clientY - box.top - box.height / 2;
  const outer = Math.min(box.width, box.height) / 2 - 12;
  const distance = Math.hypot(x, y);
  if (distance > outer || distance < outer * 0.62) return null;
  const turn = (Math.atan2(y, x) + Math.PI / 2 + 2 * Math.PI) % (2 * Math.PI);
  return (turn / (2 * Math.PI)) * total;
}

const SVG = "http://www.w3.org/2000/svg";
export function spark(values, label) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "spark");
  picture.setAttribute("viewBox", "0 0 120 26");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", label);
  if (values.length > 1) {
    const most = Math.max(...values, 1e-9);
    const points = values.map((value, at) => {
      const x = 120 - (values.length - 1 - at) * 2;
      return `${x},${(24 - (value / most) * 22).toFixed(1)}`;
    });
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", points.join(" "));
    picture.append(line);
  }
  return picture;
}
