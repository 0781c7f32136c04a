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
use std::io::{self, Stdout, StdoutLock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

/// It is ours now. One for the process, since a panic of any thread has to look here. Changes, and whoever writes to the
/// screen looks, with standard output locked: no frame ends after the terminal has been given back. That lock can be
/// taken again by a thread that has it, so a panic half way through a frame gives back too.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal that is ours until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
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
        let Some(mut output) = ours() else { return Ok(()) };
        queue!(output, BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(draw).map(|_| ());
        execute!(output, EndSynchronizedUpdate)?;
        drawn
    }

    /// Has the next frame drawn whole.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        let Some(_output) = ours() else { return Ok(()) };
        self.terminal.clear()
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
        self.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Standard output, locked, where the terminal is ours.
fn ours() -> Option<StdoutLock<'static>> {
    let output = io::stdout().lock();
    Screen::is_ours().then_some(output)
}

fn begin() -> io::Result<()> {
    let mut output = io::stdout().lock();
    TAKEN.store(true, Ordering::SeqCst);
    let began = enable_raw_mode().and_then(|()| execute!(output, EnterAlternateScreen, cursor::Hide));
    began.inspect_err(|_| give_back())
}

/// Nothing can be done where that fails.
fn give_back() {
    let mut output = io::stdout().lock();
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(output, EndSynchronizedUpdate, cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Obeys the signals that end a program, after the terminal has been given back. By a thread of its own: after a hang-up the one that waits for keys may
/// never come back from that.
pub(super) fn obey_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // Held until the end, so that nobody takes the terminal again.
            let _output = io::stdout().lock();
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
