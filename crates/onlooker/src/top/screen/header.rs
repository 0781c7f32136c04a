// SPDX-License-Identifier: Apache-2.0
//! Who is looked at, who answers, how well it goes, and what it costs.

use super::super::kind::{Kind, Region};
use super::super::model::Model;
use super::super::pace::REST_NS;
use super::super::text;
use super::super::theme::Theme;
use super::{Pen, clock, wrapped};
use crate::number::span;
use onlooker_reader::Via;

pub(super) fn draw(pen: &mut Pen, kind: Kind, model: &Model, is_paused: bool, now_ns: u64, theme: Theme) {
    let silent_ns = model.silent_ns(now_ns);
    first(pen, model, is_paused, now_ns, theme);
    // Where there is one line only, it is the alarm.
    if let Some(silent_ns) = silent_ns {
        let y = pen.area.height.saturating_sub(1).min(2);
        down(pen, y, model, silent_ns, now_ns, theme);
        if y == 2 {
            state(pen, 1, kind, model, now_ns, theme);
        }
        return;
    }
    state(pen, 1, kind, model, now_ns, theme);
    third(pen, kind, model, theme);
}

fn first(pen: &mut Pen, model: &Model, is_paused: bool, now_ns: u64, theme: Theme) {
    let (name, who, style) = match &model.told {
        None => (model.target.clone(), String::new(), theme.dim()),
        Some(told) => match told.via {
            Via::Kernel => (
                told.name.clone(),
                format!("kernel responder {}: no process of it wakes up", told.address),
                theme.good(),
            ),
            Via::Verbs => (
                told.name.clone(),
                format!("its RDMA device {}: nothing of its processors", told.address),
                theme.good(),
            ),
            Via::Tcp => {
                (told.name.clone(), format!("its agent over TCP {}: each reading wakes it", told.address), theme.warn())
            }
        },
    };
    let x = pen.put(0, 0, &name, theme.strong());
    let x = pen.put(x + 2, 0, &who, style);
    let (now, style) = match is_paused {
        true => (format!("PAUSED at {}", clock(model.utc_ns(now_ns))), theme.alarm()),
        false => (clock(model.utc_ns(now_ns)), theme.dim()),
    };
    let end = pen.area.width;
    pen.put_right(if is_paused { 0 } else { x + 2 }, end, 0, &now, style);
}

/// How it is read and how old that is.
fn state(pen: &mut Pen, y: u16, kind: Kind, model: &Model, now_ns: u64, theme: Theme) {
    let every = |ns: u128| span(i128::try_from(ns).unwrap_or(0));
    let is_followed = |region: &&(Region, Option<String>)| model.pace.follows(&region.0);
    let (followed, regions) = (model.regions.iter().filter(is_followed).count(), model.regions.len());
    let mut pieces = vec![
        ("age ".into(), theme.dim()),
        (crate::number::age(i128::from(now_ns.saturating_sub(model.read_ns))), theme.strong()),
        (format!("   {followed} of {regions} regions every {}", every(model.interval.as_nanos())), theme.dim()),
    ];
    if kind == Kind::Series {
        // Nobody shall take what is read seldom, or not at all, for what is read always.
        if followed < regions {
            let rest = u128::from(REST_NS).max(model.interval.as_nanos());
            pieces.push((format!(", others {}", every(rest)), theme.dim()));
        }
        let left_out = model.regions.iter().map(|(of, _)| of.name.as_str()).filter(|name| model.pace.leaves_out(name));
        let left_out: Vec<&str> = left_out.collect();
        if !left_out.is_empty() {
            pieces.push((format!(", not {}", left_out.join(", ")), theme.warn()));
        }
    }
    if model.left_out > 0 {
        pieces.push((format!("   {} series left out", model.left_out), theme.warn()));
    }
    if let Some((age_ns, name)) = &model.oldest {
        let age_ns = age_ns + now_ns.saturating_sub(model.read_ns);
        pieces.push((format!("   oldest {} ({name})", span(i128::from(age_ns))), theme.dim()));
    }
    if let Some(told) = &model.told {
        pieces.push((format!("   clock +-{}", span(i128::from(told.relation.error_ns(now_ns)))), theme.dim()));
        pieces.push((format!("   agent {}", told.agent), theme.dim()));
    }
    pen.line(y, &pieces);
}

/// What the view has fetched from the host, and how reading went.
fn third(pen: &mut Pen, kind: Kind, model: &Model, theme: Theme) {
    let cost = &model.costs[kind as usize];
    #[allow(clippy::cast_precision_loss)] // for people
    let bytes = text::bytes(Some(cost.bytes as f64));
    let mut pieces = vec![
        ("this view reads ".into(), theme.dim()),
        (text::bytes_rate(cost.rate()), theme.strong()),
        (format!(", {bytes} so far   "), theme.dim()),
    ];
    let count: u64 = model.gaps.values().sum();
    if count == 0 {
        pieces.push((format!("no gaps in {} readings", model.readings), theme.good()));
        if let Some(instead) = model.told.as_ref().and_then(|told| told.instead.as_ref()) {
            pieces.push((format!("   {instead}"), theme.warn()));
        }
    } else {
        let reasons: Vec<String> = model.gaps.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let said = format!("gaps {count} in {} readings: {}", model.readings, reasons.join(", "));
        pieces.push((said, theme.warn()));
        if let Some((of, Some(text))) = model.regions.iter().find(|(_, trouble)| trouble.is_some()) {
            pieces.push((format!("   region {}: {text}", of.name), theme.warn()));
        }
    }
    pen.line(2, &pieces);
}

/// Since when there is nothing, and why.
fn down(pen: &mut Pen, y: u16, model: &Model, silent_ns: u64, now_ns: u64, theme: Theme) {
    let since = clock(model.utc_ns(model.read_ns));
    let (next, why) = match &model.down {
        None => ("asked, no answer yet".to_owned(), String::new()),
        Some(down) if down.next_ns > now_ns => {
            let wait = span(i128::from(down.next_ns - now_ns));
            (format!("try {} in {wait}", down.tries + 1), format!(": {}", down.why))
        }
        Some(down) => (format!("try {} under way", down.tries + 1), format!(": {}", down.why)),
    };
    // Why comes last: it is the longest.
    let text = format!(" NO DATA since {since} ({}), {next}{why}", span(i128::from(silent_ns)));
    for (y, line) in (y..pen.area.height).zip(wrapped(&text, usize::from(pen.area.width))) {
        pen.style_row(y, theme.alarm());
        pen.put(0, y, &line, theme.alarm());
    }
}
