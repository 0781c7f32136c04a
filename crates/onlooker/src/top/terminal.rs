// SPDX-License-Identifier: Apache-2.0
//! The terminal while it is ours: raw, on the alternate screen, cursor hidden; given back however this ends: by quitting, by a signal, by a panic.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{cursor, execute};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use std::io::{self, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

/// It is ours now. One for the process, since a panic of any thread has to look here.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal that is ours until it is dropped.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        begin()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).inspect_err(|_| give_back())?;
        Ok(Self { terminal })
    }

    /// Whether it is still ours; a panic elsewhere has given it back.
    pub(super) fn is_ours() -> bool {
        TAKEN.load(Ordering::SeqCst)
    }

    /// As the terminal's own Ctrl-Z does; comes back when the shell lets us go on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        begin()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn begin() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    let began = enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen, cursor::Hide));
    began.inspect_err(|_| give_back())
}

/// Nothing can be done where that fails.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Signals that end us: noted here (a handler may do no more), obeyed once the terminal has been given back.
pub(super) struct Signals {
    ends: Vec<(i32, Arc<AtomicBool>)>,
    went_on: Arc<AtomicBool>,
}

impl Signals {
    pub(super) fn watch() -> io::Result<Self> {
        let watch = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag.clone()).map(|_| flag)
        };
        let ends = [SIGTERM, SIGINT, SIGHUP, SIGQUIT].map(|signal| watch(signal).map(|flag| (signal, flag)));
        Ok(Self { ends: ends.into_iter().collect::<io::Result<_>>()?, went_on: watch(SIGCONT)? })
    }

    /// The signal that came, if one did.
    pub(super) fn came(&self) -> Option<i32> {
        self.ends.iter().find(|(_, flag)| flag.load(Ordering::Relaxed)).map(|(signal, _)| *signal)
    }

    /// Whether we were stopped from outside and go on now: the screen is another's until it is drawn anew.
    pub(super) fn went_on(&self) -> bool {
        self.went_on.swap(false, Ordering::Relaxed)
    }
}

/// Ends as the signal would have ended us.
pub(super) fn end_by(signal: i32) -> io::Result<()> {
    signal_hook::low_level::emulate_default_handler(signal)
}
