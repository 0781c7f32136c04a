// SPDX-License-Identifier: Apache-2.0
//! `onlooker top`: one host, live, in a terminal.
//!
//! A thread reads what the view shows ([`kind`]) of the host ([`reader`]) into the [`model`]; this one draws it
//! ([`screen`]) at most ten times a second and
//! obeys keys ([`view`]).

mod advice;
mod chosen;
mod devices;
mod entities;
mod grid;
mod kind;
mod listing;
mod machine;
mod model;
mod motion;
mod natural;
mod once;
mod pace;
mod reader;
mod reason;
mod screen;
mod series;
mod terminal;
mod text;
mod theme;
mod view;

#[cfg(test)]
mod tests;

use crate::host::{ByChoice, Choice, HostError, Options, Target, addresses};
use crate::number::parse_duration;
use crate::{End, Failure, output, token};
use clap::error::ErrorKind;
use kind::Kind;
use model::Model;
use onlooker_reader::Limits;
use onlooker_reader::clock::{Moment, steady_ns};
use ratatui::crossterm::event::{self, Event};
use reader::Reader;
use rustix::termios::isatty;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terminal::Screen;
use theme::Theme;
use view::{Action, View};

/// Time between two drawings at least.
const FRAME: Duration = Duration::from_millis(100);

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
    /// What to look at first; series, if you name some with --region, else the machine
    #[arg(long, value_name = "VIEW", value_enum)]
    view: Option<Kind>,
    /// Column that the view is sorted by at first: of series active, name, value, rate, change; of tables the names
    /// that --json has
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Show only rows with these words in them (of series: name, labels, region)
    #[arg(long, value_name = "WORDS", default_value = "")]
    search: String,
    /// Show only this region's series
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Read until there are rates, print the view as plain text and end; needs no terminal
    #[arg(long)]
    once: bool,
    /// Columns of `--once`
    #[arg(long, value_name = "N", default_value_t = 140, requires = "once", value_parser = clap::value_parser!(u16).range(20..=1000))]
    width: u16,
    /// With `--once`: the view's rows as JSON, with the bytes that were read for them
    #[arg(long, requires = "once")]
    json: bool,
}

impl Arguments {
    /// What they say is to be shown; else why that cannot be.
    fn view(&self) -> Result<View, String> {
        let is_of_series = self.region.is_some() || !self.search.is_empty() || self.sort.is_some();
        let mut view = View::of(self.view.unwrap_or(if is_of_series { Kind::Series } else { Kind::Machine }));
        let name = view.kind.name();
        if self.region.is_some() && view.kind != Kind::Series {
            return Err(format!("--region shows series: leave --view {name} out"));
        }
        view.series.region.clone_from(&self.region);
        if !self.search.is_empty() {
            let filter = view.filter().ok_or_else(|| format!("the view {name} has no rows for --search"))?;
            filter.clone_from(&self.search);
        }
        if let Some(sort) = &self.sort {
            view.sort_by(sort)?;
        }
        Ok(view)
    }
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
    let view = arguments.view().unwrap_or_else(|why| clap::Error::raw(ErrorKind::InvalidValue, why + "\n").exit());
    let addresses = addresses(&arguments.target).map_err(HostError::from)?;
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    let token = arguments.token.token(is_local).map_err(HostError::from)?;
    let now = Moment::now();
    let mut model = Model::new(arguments.target.to_string(), arguments.interval, (now.steady_ns, now.utc_ns));
    model.follow(view.kind, &HashSet::new(), view.region());
    let options =
        Options { choice: arguments.via, by: arguments.by, timeout: arguments.timeout, limits: Limits::default() };
    let reader = Reader::start(model, arguments.target.clone(), addresses, token, options)?;
    if arguments.once { once::run(&reader, view, arguments) } else { live(&reader, view) }
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
                model.follow(view.kind, &view.in_view, view.region());
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
