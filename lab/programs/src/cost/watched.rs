// SPDX-License-Identifier: Apache-2.0
//! Guest `a`: starts the processes that are watched, and keeps their account. It sleeps while the reader reads.

use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use onlooker_region::map::sealed_memfd;

use super::{CONTROL_PORT, REGION_BYTES, Scheme, Talk};
use crate::common::Result;

/// After counting, before the account begins: whoever has counted is asleep again.
const SETTLE: Duration = Duration::from_millis(300);

struct Process {
    child: Child,
    talk: Talk<ChildStdout, ChildStdin>,
}

impl Process {
    fn start(arguments: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("cost").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdout.take().zip(child.stdin.take()).ok_or("no pipes")?;
        Ok(Self { child, talk: Talk::new(pipes.0, pipes.1) })
    }

    /// Its standard input ends.
    fn end(self) -> Result<()> {
        let Self { mut child, talk } = self;
        drop(talk);
        child.wait()?;
        Ok(())
    }
}

/// The processes of one scheme.
#[derive(Default)]
struct Watched {
    instances: Vec<Process>,
    holder: Option<Process>,
    run_ns: u64,
    busy_ticks: u64,
    // Opened by path by the processes.
    _memory: Vec<OwnedFd>,
}

impl Watched {
    fn start(scheme: Scheme, count: usize) -> Result<Self> {
        let mut started = Self::default();
        let mut paths = Vec::new();
        for index in 0..count {
            let memory = sealed_memfd("instance", REGION_BYTES.into())?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
            let arguments = ["instance", scheme.name(), &index.to_string(), &path].map(str::to_owned);
            started.instances.push(Process::start(&arguments)?);
            started._memory.push(memory);
            paths.push(path);
        }
        if scheme == Scheme::Read {
            paths.insert(0, "holder".to_owned());
            started.holder = Some(Process::start(&paths)?);
        }
        for process in started.instances.iter_mut().chain(&mut started.holder) {
            process.talk.expect("ready")?;
        }
        Ok(started)
    }

    /// The holder, or else all instances.
    fn servers(&mut self) -> impl Iterator<Item = &mut Process> {
        let count = if self.holder.is_some() { 0 } else { self.instances.len() };
        self.instances[..count].iter_mut().chain(&mut self.holder)
    }

    /// How long all threads of the watched processes have run.
    fn run_ns(&self) -> Result<u64> {
        let mut run_ns = 0;
        for process in self.instances.iter().chain(&self.holder) {
            for task in std::fs::read_dir(format!("/proc/{}/task", process.child.id()))? {
                let account = std::fs::read_to_string(task?.path().join("schedstat"))?;
                let run = account.split_whitespace().next().ok_or("no time in schedstat")?;
                run_ns += run.parse::<u64>()?;
            }
        }
        Ok(run_ns)
    }

    fn count(&mut self, phase: &str) -> Result<()> {
        for process in &mut self.instances {
            process.talk.tell(&format!("count {phase}"))?;
        }
        for process in &mut self.instances {
            process.talk.expect("counted")?;
        }
        std::thread::sleep(SETTLE);
        (self.run_ns, self.busy_ticks) = (self.run_ns()?, busy_ticks()?);
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.instances.into_iter().chain(self.holder).try_for_each(Process::end)
    }
}

/// What the whole guest did, kernel included: with soft-RoCE the kernel does what a card does itself.
fn busy_ticks() -> Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let first = stat.lines().next().unwrap_or_default();
    let ticks =
        first.split_whitespace().skip(1).take(8).map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = ticks[..] else {
        return Err(format!("/proc/stat: {first:?}").into());
    };
    Ok(user + nice + system + irq + softirq + steal)
}

pub(crate) fn run() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", CONTROL_PORT))?;
    let mut reader = Talk::over(listener.accept()?.0)?;
    let mut watched = Watched::default();
    // Until the reader closes.
    while let Ok(line) = reader.hear() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["start", scheme, count] => {
                watched.end()?;
                watched = Watched::start(scheme.parse()?, count.parse()?)?;
                let before = watched.run_ns()?;
                watched.servers().try_for_each(|process| process.talk.tell("setup"))?;
                watched.servers().try_for_each(|process| process.talk.expect("listening").map(drop))?;
                reader.tell("listening")?;
                watched.servers().try_for_each(|process| process.talk.expect("connected").map(drop))?;
                reader.tell(&format!("connected {}", watched.run_ns()? - before))?;
            }
            ["count", phase] => {
                watched.count(phase)?;
                reader.tell("counted")?;
            }
            ["account"] => {
                let run_ns = watched.run_ns()? - watched.run_ns;
                reader.tell(&format!("account {run_ns} {}", busy_ticks()? - watched.busy_ticks))?;
            }
            _ => return Err(format!("the reader says {line:?}").into()),
        }
    }
    watched.end()
}
