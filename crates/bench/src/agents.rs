// SPDX-License-Identifier: Apache-2.0
//! Real agents, which somebody else has started, as a controller reads them: over the kernel responder, else over TCP;
//! regions rest between their samples.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use onlooker_bootstrap::Token;
use onlooker_reader::{Limits, Pair, Session};
use onlooker_transport::open::{Asker, Way, open};

/// Name told to agents.
const READER: &str = "onlooker-bench";
/// For an agent's answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where an agent is, and what it wants to be shown.
pub(crate) struct Agent {
    address: SocketAddr,
    token: Token,
}

impl Agent {
    /// Of `HOST:PORT=TOKEN_FILE`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (address, file) = text.split_once('=').context("an agent is ADDRESS:PORT=TOKEN_FILE")?;
        let token = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
        Ok(Self { address: address.parse()?, token: Token::parse(token.trim())? })
    }

    pub(crate) fn connect(&self) -> Result<(Way, Session)> {
        let asker = Asker { token: &self.token, reader: READER, timeout: PATIENCE };
        let mut way = open(&asker.ask(&[self.address])?, &[Pair::SOFT_KERNEL, Pair::TCP], &asker)?;
        let mut session = way.session(Limits::default());
        session.rest();
        session.know_clock(way.told.relation);
        Ok((way, session))
    }
}

/// Does something with all agents at the same time.
pub(crate) fn beside<T: Send>(agents: &[Agent], each: impl Fn(usize, &Agent) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let each = &each;
        let start = |(number, agent)| (agent, scope.spawn(move || each(number, agent)));
        let threads: Vec<_> = agents.iter().enumerate().map(start).collect();
        let end = |(agent, thread): (&Agent, std::thread::ScopedJoinHandle<'_, Result<T>>)| {
            let done = thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")));
            done.with_context(|| agent.address.to_string())
        };
        threads.into_iter().map(end).collect()
    })
}
