// SPDX-License-Identifier: Apache-2.0
//! `onlooker top`: one host, live, in a terminal.
//!
//! A thread reads the host ([`reader`]) into the [`model`]; this one draws it ([`screen`]) at most ten times a second and obeys keys ([`view`]).

mod machine;
mod model;
mod motion;
mod pace;
mod reader;
mod reason;
mod screen;
mod series;
mod terminal;
mod theme;
mod view;

#[cfg(test)]
mod tests;

use crate::host::{ByChoice, Choice, HostError, Options, Target, addresses};
use crate::number::parse_duration;
use crate::suggest::nearest;
use crate::{End, Failure, output, token};
use model::Model;
use onlooker_reader::Limits;
use onlooker_reader::clock::{Moment, steady_ns};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::Rect;
use reader::Reader;
use rustix::termios::isatty;
use std::collections::{BTreeSet, HashSet};
use std::io::{self, Write as _};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terminal::Screen;
use theme::Theme;
use view::{Action, Column, View};

/// Time between two drawings at least.
const FRAME: Duration = Duration::from_millis(100);
/// How long `--once` reads, so that there are rates.
const ONCE: Duration = Duration::from_millis(1_100);
/// Series that `--once` prints at most.
const ONCE_ROWS: u16 = 2_000;

/// What the user asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The host, with the port of its agent's bootstrap endpoint [default port: 7177]
    #[arg(value_name = "HOST[:PORT]")]
    target: Target,
    #[command(flatten)]
    token: token::Source,
    /// Time between two readings; the screen changes ten times a second at most
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    interval: Duration,
    /// Which of the host's responders to read from
    #[arg(long, value_name = "RESPONDER", value_enum, default_value = "auto")]
    via: Choice,
    /// Who sends READs to devices and kernel responders
    #[arg(long, value_name = "REQUESTER", value_enum, default_value = "auto")]
    by: ByChoice,
    /// Time for connecting, and for each reading
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    timeout: Duration,
    /// Column that the series are sorted by at first
    #[arg(long, value_name = "COLUMN", value_enum, default_value = "active")]
    sort: Column,
    /// Show only series with these words in name, labels or region
    #[arg(long, value_name = "WORDS", default_value = "")]
    search: String,
    /// Show only this region
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Read for a second, print all as plain text and end; needs no terminal
    #[arg(long)]
    once: bool,
    /// Columns of `--once`
    #[arg(long, value_name = "N", default_value_t = 140, requires = "once", value_parser = clap::value_parser!(u16).range(20..=1000))]
    width: u16,
}

/// Shows the host until the user quits.
pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let has_terminal = isatty(io::stdout()) && isatty(io::stdin());
    if !arguments.once && !has_terminal {
        output::note(&format!(
            "top needs a terminal to draw on and to take keys from; use `onlooker read {0}` for values in a file or pipe, or `onlooker top {0} --once` for one frame",
            arguments.target
        ));
        return Ok(End::Incomplete);
    }
    let addresses = addresses(&arguments.target).map_err(HostError::from)?;
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    let token = arguments.token.token(is_local).map_err(HostError::from)?;
    let now = Moment::now();
    let mut model = Model::new(arguments.target.to_string(), arguments.interval, (now.steady_ns, now.utc_ns));
    model.follow(&HashSet::new(), arguments.region.as_deref());
    let options =
        Options { choice: arguments.via, by: arguments.by, timeout: arguments.timeout, limits: Limits::default() };
    let reader = Reader::start(model, arguments.target.clone(), addresses, token, options)?;
    let view = View {
        sort: arguments.sort,
        search: arguments.search.clone(),
        region: arguments.region.clone(),
        is_whole: arguments.once,
        ..View::default()
    };
    if arguments.once { once(&reader, view, arguments.width) } else { live(&reader, view) }
}

fn live(reader: &Reader, mut view: View) -> Result<End, Failure> {
    let theme = Theme::of_environment();
    terminal::obey_signals()?;
    terminal::obey_hang_up();
    let went_on = terminal::went_on()?;
    let mut screen = Screen::take()?;
    let (mut drawn, mut version) = (None::<Instant>, 0);
    let mut is_wanted = true;
    loop {
        if reader.has_ended() {
            drop(screen);
            output::note("the reading thread has failed; that is a fault of this program");
            return Ok(End::Incomplete);
        }
        if !Screen::is_ours() {
            // A signal or a panic has given it back and is about to end us.
            std::thread::sleep(FRAME);
            continue;
        }
        if went_on.swap(false, Ordering::Relaxed) {
            screen.clear()?;
            is_wanted = true;
        }
        let since = drawn.map_or(FRAME, |drawn| drawn.elapsed());
        if since >= FRAME {
            let mut model = reader.model();
            // Ages and waits go on by themselves while nothing comes, but need not be redrawn so often.
            if is_wanted || (model.version != version && view.paused.is_none()) || since >= 5 * FRAME {
                version = model.version;
                let now_ns = steady_ns();
                screen.draw(|frame| {
                    let area = frame.area();
                    screen::draw(&mut view, &model, now_ns, theme, area, frame.buffer_mut());
                })?;
                model.follow(&view.in_view, view.region.as_deref());
                drawn = Some(Instant::now());
                is_wanted = false;
            }
        }
        let wait = drawn.map_or(FRAME, |drawn| FRAME.saturating_sub(drawn.elapsed())).max(Duration::from_millis(1));
        if !event::poll(if is_wanted { wait } else { wait.max(FRAME / 2) })? {
            continue;
        }
        match event::read()? {
            Event::Key(key) => {
                let action = view.key(key, &reader.model(), steady_ns());
                match action {
                    Action::None => {}
                    Action::Redraw => is_wanted = true,
                    Action::Quit => return Ok(End::Done),
                    Action::Suspend => {
                        screen.suspend()?;
                        is_wanted = true;
                    }
                }
            }
            Event::Resize(..) => is_wanted = true,
            _ => {}
        }
    }
}

/// Why nothing is shown of what was asked for; `None` where something is, or nothing was.
fn nothing(view: &View, model: &Model) -> Option<String> {
    let names: BTreeSet<&str> = model.regions.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(region) = view.region.as_deref().filter(|region| !names.contains(region)) {
        let hint = match nearest(region, names.into_iter()).as_slice() {
            [] => format!("`onlooker read {} --regions` shows all", model.target),
            near => format!("did you mean {}?", near.join(", ")),
        };
        return Some(format!("no region `{}`: {hint}", output::shown(region)));
    }
    if view.search.trim().is_empty() || !view.rows(model).is_empty() {
        return None;
    }
    let (search, all) = (output::shown(&view.search), model.series.len());
    let region = view.region.as_ref().map_or_else(String::new, |region| format!(" of region {region}"));
    Some(format!("no series{region} has all of these words: {search} ({all} series are there)"))
}

/// One frame with all series, as text.
fn once(reader: &Reader, mut view: View, width: u16) -> Result<End, Failure> {
    let begin = Instant::now();
    let is_down = loop {
        std::thread::sleep(Duration::from_millis(10));
        let mut model = reader.model();
        if model.down.is_some() || reader.has_ended() {
            break true;
        }
        let rows = view.rows(&model);
        let shown = rows.into_iter().map(|index| model.series[index].key.region).collect();
        model.follow(&shown, view.region.as_deref());
        if model.readings >= 2 && begin.elapsed() >= ONCE {
            break false;
        }
    };
    let model = reader.model();
    if let Some(why) = nothing(&view, &model) {
        output::note(&why);
        return Ok(if is_down { End::Incomplete } else { End::NothingMatched });
    }
    let height = screen::full_height(&view, &model, width).min(ONCE_ROWS);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let area = buffer.area;
    screen::draw(&mut view, &model, steady_ns(), Theme::plain(), area, &mut buffer);
    let mut out = output::stdout();
    // The keys at the bottom are of no use here, nor is what is said of the chosen series.
    for y in 0..height.saturating_sub(3) {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    out.flush()?;
    Ok(if is_down { End::Incomplete } else { End::Done })
}
