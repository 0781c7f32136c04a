// SPDX-License-Identifier: Apache-2.0
//! The terminal while it is ours: raw, on the alternate screen, cursor hidden; given back however this ends: by quitting, by a signal, by a panic.

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute, queue};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
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

    /// Draws so that a terminal which can (`CSI ? 2026`) shows the frame at once, never half of it; others pass over the words.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(draw).map(|_| ());
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        drawn
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
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Obeys the signals that end a program, after the terminal has been given back. By a thread of its own: after a hang-up the one that waits for keys may
/// never come back from that.
pub(super) fn obey_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            give_back();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Ends as by SIGHUP when the terminal hangs up. The signal itself goes to the session's leader; where that ignores it (a shell under nohup), it comes to nobody
/// else, and waiting for keys would return at once for ever.
pub(super) fn obey_hang_up() {
    std::thread::spawn(|| {
        let output = io::stdout();
        loop {
            // Hang-up and error are told without being asked for.
            let mut terminal = [PollFd::new(&output, PollFlags::empty())];
            let told = poll(&mut terminal, None);
            if told.is_ok() || told.is_err_and(|error| error != rustix::io::Errno::INTR) {
                break;
            }
        }
        give_back();
        let _ = signal_hook::low_level::emulate_default_handler(SIGHUP);
    });
}

/// Raised when we were stopped from outside and go on: what stands on the screen is another's then.
pub(super) fn went_on() -> io::Result<Arc<AtomicBool>> {
    let went_on = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGCONT, went_on.clone())?;
    Ok(went_on)
}
