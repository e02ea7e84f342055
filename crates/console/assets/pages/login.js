// Who may operate: the bearer of the token.

import { h } from "../dom.js";

export default function login(wrong, enter) {
  const field = h("input", {
    type: "password",
    id: "token",
    autocomplete: "current-password",
    required: true,
  });
  const form = h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        enter(field.value.trim());
      },
    },
    h("label", { className: "field", htmlFor: "token" }, "Admin token", field),
    wrong ? h("div", { className: "notice bad", role: "alert" }, "The token is not this server's.") : null,
    h("button", { className: "main" }, "Sign in"),
    h(
      "p",
      { className: "small dim" },
      "It is the value of admin.token in the server's configuration. The browser keeps ",
      "it until this tab is closed.",
    ),
  );
  return h("div", { className: "login panel" }, h("h1", {}, "Sign in"), form);
}
