//! What every plan must keep to, for whatever situation.

use std::collections::BTreeMap;

use polyshard_map::{KeyBytes, KeyRange, ShardId};
use proptest::prelude::*;

use super::*;

fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

fn range(number: u16) -> KeyRange {
    let bound = |number: u16| KeyBytes::new(number.to_be_bytes().to_vec());
    KeyRange::new(bound(number), Some(bound(number + 1))).unwrap()
}

fn piece(number: u16, on: &str, bytes: u64, requests: f64) -> Piece {
    Piece {
        range: range(number),
        shard: shard(on),
        rows: bytes,
        bytes,
        requests,
        traffic: 0.0,
        adjoins: false,
    }
}

fn place(name: &str) -> Place {
    Place {
        shard: shard(name),
        seen: Seen { region: None, tier: None },
        takes: true,
        kept: None,
        bytes: 0,
        bytes_max: None,
        entries: 0,
        entries_max: None,
    }
}

fn situation<'a>(pieces: &'a [Piece], places: &'a [Place], rules: &'a [Rule]) -> Situation<'a> {
    Situation { pieces, places, rules, resting: &[], definition: None }
}

const AIM: Aim = Aim::new(By::Load, 10);

fn applied(pieces: &[Piece], plan: &Plan) -> Vec<Piece> {
    let to = |piece: &Piece| plan.moves.iter().find(|planned| planned.range.covers(&piece.range));
    let moved = |piece: &Piece| match to(piece) {
        Some(planned) => Piece { shard: planned.to.clone(), ..piece.clone() },
        None => piece.clone(),
    };
    pieces.iter().map(moved).collect()
}

// A4: adding the n-th shard moves about 1/n of the data and nothing else.
#[test]
fn a_fifth_shard_gets_a_fifth_and_nothing_else_moves() {
    let old = ["s1", "s2", "s3", "s4"];
    let pieces: Vec<Piece> = (0..256).map(|n| piece(n, old[usize::from(n) / 64], 1000, 0.0)).collect();
    let places = ["s1", "s2", "s3", "s4", "s5"].map(place);
    let plan = situation(&pieces, &places, &[]).even_out(Aim { slack_percent: 2, ..AIM });
    assert!(plan.moves.iter().all(|planned| planned.to == shard("s5")));
    let moved: u64 = plan.moves.iter().map(|planned| planned.bytes).sum();
    let percent = moved as f64 * 100.0 / 256_000.0;
    assert!((18.0..=22.0).contains(&percent), "{percent}");
    assert_eq!(plan.moves.len(), 4, "one run from each of the others");
    // What goes as one has one reason, in numbers of the whole.
    for planned in &plan.moves {
        let part = planned.bytes as f64 * 100.0 / 256_000.0;
        let why = format!(
            "{} has 25.0 % of the load and s5 0.0 %, where 20.0 % would be even; this is {part:.1} %",
            planned.from
        );
        assert_eq!(planned.why, why);
    }
}

// D3: many small pieces leave one full shard in few moves, also where the keys of a list do not meet.
#[test]
fn what_leaves_one_shard_for_several_goes_in_a_few_runs() {
    let mut pieces: Vec<Piece> = (0..400).map(|n| piece(n, "s1", 10, 0.0)).collect();
    let places = ["s1", "s2", "s3", "s4"].map(place);
    let plan = situation(&pieces, &places, &[]).even_out(AIM);
    assert_eq!(plan.moves.len(), 3, "{plan:?}");
    for (number, one) in (0..).zip(&mut pieces) {
        one.range = KeyRange::point(KeyBytes::new(u16::to_be_bytes(number).to_vec()));
        // One has something before it that is no piece of its own, as a member of a group.
        one.adjoins = number > 0 && number != 50;
    }
    let plan = situation(&pieces, &places, &[]).even_out(AIM);
    assert_eq!(plan.moves.len(), 4, "{plan:?}");
    let cut = KeyBytes::new(vec![0, 50]);
    assert!(plan.moves.iter().any(|planned| *planned.range.lo() == cut), "{plan:?}");
    let loads = loads_after(&pieces, &plan);
    assert!(loads.values().all(|(_, after)| (900..=1100).contains(after)), "{loads:?}");
}

// D3: by load, not by size alone; the small hot piece rather than the large cold one.
#[test]
fn a_hot_small_piece_is_carried_rather_than_a_cold_large_one() {
    let pieces = [
        piece(0, "s1", 10, 50.0),
        piece(1, "s1", 10, 50.0),
        piece(2, "s1", 1000, 0.0),
        piece(3, "s2", 980, 0.0),
    ];
    let plan = situation(&pieces, &[place("s1"), place("s2")], &[]).even_out(Aim { by: By::Requests, ..AIM });
    assert_eq!(plan.moves.len(), 1);
    assert_eq!((plan.moves[0].bytes, plan.moves[0].to.clone()), (10, shard("s2")));
    assert!(plan.moves[0].why.contains("100.0 %"), "{}", plan.moves[0].why);
}

// D3: it says when moving cannot help.
#[test]
fn one_piece_that_is_too_hot_is_named_and_not_moved_to_and_fro() {
    let pieces = [piece(0, "s1", 10, 90.0), piece(1, "s1", 10, 1.0), piece(2, "s2", 10, 9.0)];
    let rules = [Rule::Region { range: range(1), region: "eu".to_owned() }];
    let plan =
        situation(&pieces, &[place("s1"), place("s2")], &rules).even_out(Aim { by: By::Requests, ..AIM });
    assert_eq!(plan.moves, []);
    assert!(plan.notes.iter().any(|note| note.contains("polyshard isolate")), "{:?}", plan.notes);
    let alone = [piece(0, "s1", 10, 90.0), piece(1, "s2", 10, 10.0)];
    let plan = situation(&alone, &[place("s1"), place("s2")], &[]).even_out(AIM);
    assert_eq!(plan.moves, []);
    assert!(plan.notes[0].contains("has the shard to itself already"), "{:?}", plan.notes);
}

// D3: adjacent hot keys: hash instead.
#[test]
fn hot_keys_beside_each_other_are_found_and_scattered_ones_are_not() {
    let beside: Vec<Piece> =
        (0..100).map(|n| piece(n, "s1", 10, if (95..99).contains(&n) { 20.0 } else { 0.1 })).collect();
    let (found, part) = super::notes::hot_stretch(&beside).unwrap();
    assert!(found.covers(&range(96)) && !found.overlaps(&range(50)), "{found:?}");
    assert!(part >= 50.0, "{part}");
    let scattered: Vec<Piece> =
        (0..100).map(|n| piece(n, "s1", 10, if n % 25 == 0 { 20.0 } else { 0.1 })).collect();
    assert_eq!(super::notes::hot_stretch(&scattered), None);
    let one: Vec<Piece> = (0..100).map(|n| piece(n, "s1", 10, if n == 7 { 20.0 } else { 0.0 })).collect();
    assert_eq!(super::notes::hot_stretch(&one), None, "one key has no neighbours to be spread among");
}

// D3: by itself it must come to rest.
#[test]
fn what_was_moved_lately_rests_and_what_is_noise_moves_nothing() {
    let pieces = [piece(0, "s1", 10, 50.0), piece(1, "s1", 10, 40.0), piece(2, "s2", 10, 10.0)];
    let places = [place("s1"), place("s2")];
    let aim = Aim { by: By::Requests, ..AIM };
    let moved = situation(&pieces, &places, &[]).even_out(aim);
    assert_eq!(moved.moves.len(), 1);
    let resting = [moved.moves[0].range.clone()];
    let again = Situation { resting: &resting, ..situation(&pieces, &places, &[]) }.even_out(aim);
    assert!(again.moves.iter().all(|planned| planned.range != resting[0]), "{again:?}");
    let everything = [KeyRange::all()];
    let none = Situation { resting: &everything, ..situation(&pieces, &places, &[]) }.even_out(aim);
    assert_eq!(none.moves, []);
    let noise = situation(&pieces, &places, &[]).even_out(Aim { requests_min: 101, ..aim });
    assert_eq!((noise.moves, noise.notes), (vec![], vec![]));
    let few = situation(&pieces, &places, &[]).even_out(Aim { by: By::Bytes, bytes_min: 31, ..AIM });
    assert_eq!(few.moves, []);
}

#[test]
fn once_something_has_to_move_it_is_evened_out_further_than_it_had_to_be() {
    // s1 is 25 % above the mean: within a slack of 30 nothing moves; with one of 20 it goes down to within 5.
    let mut pieces: Vec<Piece> = (0..125).map(|n| piece(n, "s1", 10, 0.0)).collect();
    pieces.extend((125..200).map(|n| piece(n, "s2", 10, 0.0)));
    let places = [place("s1"), place("s2")];
    let aim = |slack_percent| Aim { slack_percent, goal_percent: 5, ..AIM };
    assert_eq!(situation(&pieces, &places, &[]).even_out(aim(30)).moves, []);
    let plan = situation(&pieces, &places, &[]).even_out(aim(20));
    let after = loads_after(&pieces, &plan)[&shard("s1")].1;
    assert!((1000..=1050).contains(&after), "{after}");
}

#[test]
fn what_is_alone_stays_and_what_disturbs_it_goes() {
    let pieces = [piece(0, "s1", 10, 0.0), piece(1, "s1", 500, 0.0), piece(2, "s2", 10, 0.0)];
    let rules = [Rule::Alone { range: range(0) }];
    let plan = situation(&pieces, &[place("s1"), place("s2")], &rules).even_out(AIM);
    assert_eq!(plan.moves.len(), 1);
    assert_eq!((&plan.moves[0].range, &plan.moves[0].to), (&range(1), &shard("s2")));
}

// D3: a shard that nothing else may come to says nothing about what the others should have.
#[test]
fn a_tenant_on_a_shard_of_its_own_does_not_make_the_others_uneven() {
    let mut pieces = vec![piece(0, "s5", 1, 0.0)];
    pieces.extend((1..101).map(|n| piece(n, ["s1", "s2", "s3", "s4"][usize::from(n) % 4], 10, 0.0)));
    let rules = [Rule::Alone { range: range(0) }];
    let places = ["s1", "s2", "s3", "s4", "s5"].map(place);
    let plan = situation(&pieces, &places, &rules).even_out(AIM);
    assert_eq!((plan.moves, plan.notes), (vec![], vec![]));
    // One that is too hot for it is still told of.
    pieces[0].bytes = 5_000;
    let plan = situation(&pieces, &places, &rules).even_out(AIM);
    assert_eq!(plan.moves, []);
    assert!(plan.notes[0].contains("has the shard to itself already"), "{:?}", plan.notes);
}

// D3: what rules keep on a few shards is even enough if it is even among those.
#[test]
fn nothing_moves_between_shards_that_are_about_as_full_because_of_others() {
    let region = |name: &str, region: &str| Place {
        seen: Seen { region: Some(region.to_owned()), tier: None },
        ..place(name)
    };
    let places = [region("s1", "eu"), region("s2", "eu"), region("s3", "us"), region("s4", "us")];
    let pin = |n: u16| Rule::Region { range: range(n), region: "eu".to_owned() };
    let split = |first: u16| -> Vec<Piece> {
        (0..100).map(|n| piece(n, if n < first { "s1" } else { "s2" }, 10, 0.0)).collect()
    };
    let rules: Vec<Rule> = (0..100).map(pin).collect();
    let plan = situation(&split(51), &places, &rules).even_out(AIM);
    assert_eq!(plan.moves, []);
    assert!(plan.notes[0].contains("because of rules"), "{:?}", plan.notes);
    let pieces = split(70);
    let plan = situation(&pieces, &places, &rules).even_out(AIM);
    let after = loads_after(&pieces, &plan)[&shard("s1")].1;
    assert!((500..=530).contains(&after), "{after}");
}

// D5: "alone" is alone whatever map the others are of.
#[test]
fn a_shard_that_another_map_has_to_itself_gets_nothing_and_what_is_there_leaves() {
    let pieces: Vec<Piece> = (0..8).map(|n| piece(n, "s1", 10, 0.0)).collect();
    let kept = Place { kept: Some("7 has its shard to itself".to_owned()), ..place("s3") };
    let places = [place("s1"), place("s2"), kept];
    let plan = situation(&pieces, &places, &[]).even_out(AIM);
    assert!(!plan.moves.is_empty() && plan.moves.iter().all(|planned| planned.to == shard("s2")), "{plan:?}");
    let there = [piece(0, "s1", 10, 0.0), piece(1, "s2", 10, 0.0), piece(2, "s3", 10, 0.0)];
    let plan = situation(&there, &places, &[]).even_out(AIM);
    assert_eq!((plan.moves.len(), &plan.moves[0].from), (1, &shard("s3")));
    assert!(plan.moves[0].why.contains("7 has its shard to itself"), "{}", plan.moves[0].why);
    let why = situation(&pieces, &places, &[]).refuses(&range(0), 1, &shard("s3")).unwrap();
    assert!(why.contains("share shard s3"), "{why}");
}

// D5: a plan is made in an order in which every move may be begun.
#[test]
fn what_makes_room_for_another_moves_before_it() {
    // 0 is not together with 1, which leaves s2 for the region that it belongs to; 0 is the hotter one.
    let pieces = [piece(0, "s1", 10, 90.0), piece(1, "s2", 10, 1.0), piece(2, "s1", 10, 90.0)];
    let eu = Seen { region: Some("eu".to_owned()), tier: None };
    let places = [place("s1"), place("s2"), Place { seen: eu, ..place("s3") }];
    let pin = |n: u16, region: &str| Rule::Region { range: range(n), region: region.to_owned() };
    let rules = [Rule::Apart { ranges: vec![range(0), range(1)] }, pin(1, "eu")];
    let plan = situation(&pieces, &places, &rules).even_out(Aim { by: By::Requests, ..AIM });
    let order: Vec<&KeyRange> = plan.moves.iter().map(|planned| &planned.range).collect();
    assert_eq!(order, [&range(1), &range(0)], "{plan:?}");
}

// D5: with the least that has to be carried.
#[test]
fn who_is_to_be_alone_among_many_goes_to_an_empty_shard_himself() {
    let mut pieces: Vec<Piece> = (0..100).map(|n| piece(n, "s1", 10, 0.0)).collect();
    pieces.extend((100..200).map(|n| piece(n, "s2", 10, 0.0)));
    let rules = [Rule::Alone { range: range(30) }];
    let places = ["s1", "s2", "s3"].map(place);
    let plan = situation(&pieces, &places, &rules).even_out(AIM);
    assert_eq!(plan.moves.len(), 1, "{plan:?}");
    assert_eq!((&plan.moves[0].range, &plan.moves[0].to), (&range(30), &shard("s3")));
    // Where there is no empty one the others go, in few moves.
    let plan = situation(&pieces, &places[..2], &rules).even_out(AIM);
    assert_eq!((plan.moves.len(), loads_after(&pieces, &plan)[&shard("s1")].1), (2, 10), "{plan:?}");
}

// D5: what cannot be put right is named, with what each shard says; of many alike only some are.
#[test]
fn what_no_shard_may_take_is_named_and_why() {
    let pieces: Vec<Piece> = (0..20).map(|n| piece(n, "s1", 10, 0.0)).collect();
    let all = KeyRange::new(range(0).lo().clone(), range(19).hi().cloned()).unwrap();
    let rules = [Rule::Region { range: all, region: "eu".to_owned() }];
    let plan = situation(&pieces, &[place("s1"), place("s2")], &rules).even_out(AIM);
    assert_eq!(plan.moves, []);
    assert!(plan.notes[0].contains("shard s1 is in no region"), "{:?}", plan.notes);
    assert!(plan.notes[0].contains("no other place") && plan.notes[0].contains("s2"), "{:?}", plan.notes);
    assert!(plan.notes[5].contains("15 more"), "{:?}", plan.notes);
}

#[test]
fn a_drained_shard_keeps_only_what_has_no_other_place_and_it_is_named() {
    let pieces: Vec<Piece> = (0..9).map(|n| piece(n, "s1", 10, 0.0)).collect();
    let mut places = [place("s1"), place("s2"), place("s3")];
    places[0].takes = false;
    let plan = situation(&pieces, &places, &[]).drain(&shard("s1"), AIM);
    let loads = loads_after(&pieces, &plan);
    assert_eq!(loads[&shard("s1")], (90, 0));
    assert!((40..=50).contains(&loads[&shard("s2")].1));
    let rules = [Rule::Region { range: range(3), region: "eu".to_owned() }];
    let plan = situation(&pieces, &places, &rules).drain(&shard("s1"), AIM);
    assert_eq!(loads_after(&pieces, &plan)[&shard("s1")].1, 10);
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
}

#[test]
fn what_is_refused_says_the_limit() {
    let full = Place { bytes: 95, bytes_max: Some(100), ..place("s2") };
    let (pieces, places) = ([piece(0, "s1", 10, 0.0)], [place("s1"), full]);
    let situation = situation(&pieces, &places, &[]);
    let why = situation.refuses(&range(0), 10, &shard("s2")).unwrap();
    assert!(why.contains("105 bytes") && why.contains("100"), "{why}");
    assert_eq!(situation.refuses(&range(0), 5, &shard("s2")), None);
}

prop_compose! {
    fn situations()(
        pieces in prop::collection::vec((0u64..1000, 0u32..100, 0usize..5), 1..60),
        limits in prop::collection::vec(prop::option::of(0u64..20_000), 5),
        regions in prop::collection::vec(prop::option::of("eu|us"), 5),
        pins in prop::collection::vec((0u16..60, "eu|us"), 0..6),
        apart in prop::collection::vec(0u16..60, 0..4),
        alone in prop::option::of(0u16..60),
    ) -> (Vec<Piece>, Vec<Place>, Vec<Rule>) {
        let names = ["s1", "s2", "s3", "s4", "s5"];
        let pieces: Vec<Piece> = pieces.iter().enumerate()
            .map(|(n, (bytes, requests, on))| piece(n as u16, names[*on], *bytes, f64::from(*requests)))
            .collect();
        let places = names.iter().zip(limits).zip(regions).map(|((name, bytes_max), region)| {
            let own: u64 = pieces.iter().filter(|piece| piece.shard == shard(name)).map(|piece| piece.bytes).sum();
            Place { bytes: own, bytes_max, seen: Seen { region, tier: None }, ..place(name) }
        }).collect();
        let mut rules: Vec<Rule> =
            pins.into_iter().map(|(at, region)| Rule::Region { range: range(at), region }).collect();
        let mut apart: Vec<u16> = apart;
        apart.sort_unstable();
        apart.dedup();
        rules.push(Rule::Apart { ranges: apart.into_iter().map(range).collect() });
        rules.extend(alone.map(|at| Rule::Alone { range: range(at) }));
        (pieces, places, rules)
    }
}

fn broken(pieces: &[Piece], places: &[Place], rules: &[Rule]) -> usize {
    let seen: BTreeMap<&ShardId, &Seen> = places.iter().map(|place| (&place.shard, &place.seen)).collect();
    let is_broken = |piece: &&Piece| {
        let others = pieces.iter().filter(|other| other.shard == piece.shard && other.range != piece.range);
        let there: Vec<KeyRange> = others.map(|other| other.range.clone()).collect();
        let forbids =
            |rule: &Rule| rule.forbids(&piece.range, &piece.shard, seen[&piece.shard], &there, None);
        rules.iter().any(|rule| forbids(rule).is_some())
    };
    pieces.iter().filter(is_broken).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_plan_fills_a_shard_above_its_limit_or_breaks_a_rule((pieces, places, rules) in situations()) {
        let plan = situation(&pieces, &places, &rules).even_out(AIM);
        let after = applied(&pieces, &plan);
        prop_assert!(broken(&after, &places, &rules) <= broken(&pieces, &places, &rules));
        for place in &places {
            let bytes: u64 = after.iter().filter(|piece| piece.shard == place.shard).map(|piece| piece.bytes).sum();
            let gained = plan.moves.iter().any(|planned| planned.to == place.shard);
            if let (Some(most), true) = (place.bytes_max, gained) {
                prop_assert!(bytes <= most.max(place.bytes), "{} has {bytes} of {most}", place.shard);
            }
        }
    }

    #[test]
    fn every_move_may_be_begun_when_its_turn_comes((pieces, places, rules) in situations()) {
        prop_assume!(broken(&pieces, &places, &rules) == 0);
        let mut now = pieces.clone();
        for planned in situation(&pieces, &places, &rules).even_out(AIM).moves {
            now = applied(&now, &Plan { moves: vec![planned], notes: vec![] });
            prop_assert_eq!(broken(&now, &places, &rules), 0);
        }
    }

    #[test]
    fn plans_come_to_an_end_and_never_make_the_fullest_fuller((pieces, places, _) in situations()) {
        let fullest = |pieces: &[Piece]| {
            let weights = situation(pieces, &places, &[]).weights(AIM);
            let mut loads: BTreeMap<&ShardId, u64> = BTreeMap::new();
            for (piece, weight) in pieces.iter().zip(weights) {
                *loads.entry(&piece.shard).or_default() += weight;
            }
            loads.values().copied().max().unwrap_or(0)
        };
        let mut now = pieces;
        for round in 0.. {
            let places: Vec<Place> = places.iter().map(|place| {
                let own = now.iter().filter(|piece| piece.shard == place.shard).map(|piece| piece.bytes).sum();
                Place { bytes: own, ..place.clone() }
            }).collect();
            let plan = situation(&now, &places, &[]).even_out(AIM);
            if plan.moves.is_empty() {
                break;
            }
            let next = applied(&now, &plan);
            prop_assert!(fullest(&next) <= fullest(&now));
            now = next;
            prop_assert!(round < 20, "it does not come to an end");
        }
    }

    #[test]
    fn the_same_situation_gives_the_same_plan((pieces, places, rules) in situations()) {
        let backwards: Vec<Piece> = pieces.iter().rev().cloned().collect();
        let (one, other) = (situation(&pieces, &places, &rules), situation(&backwards, &places, &rules));
        prop_assert_eq!(one.even_out(AIM).moves, other.even_out(AIM).moves);
    }
}
