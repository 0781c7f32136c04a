// SPDX-License-Identifier: Apache-2.0
//! The engine's thread and the processors', from start to stop.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use onlooker_reader::clock::steady_ns;

use super::{Config, EngineError, Orders, Pressure, rim, system};
use crate::processor::Processor;
use crate::sink::Sink;

/// A running engine's thread.
pub struct Running<S> {
    orders: Orders,
    pressure: Arc<Pressure>,
    thread: JoinHandle<Result<(), EngineError>>,
    processors: Vec<JoinHandle<S>>,
}

impl<S: Sink + Send + 'static> Running<S> {
    /// Starts an engine and a processor for each sink, each on a thread of its own, without hosts yet. A host's readings
    /// all go to the same sink.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn start(config: Config, sinks: Vec<S>) -> Result<Self, EngineError> {
        let (tell, told) = channel();
        let pressure = Arc::new(Pressure::default());
        let shown = pressure.clone();
        let (told_of, processors) = Processor::start(sinks).map_err(system("start a thread"))?;
        // Its sockets cannot change threads, so that it is made where it runs.
        let run = move || {
            let (mut engine, orders) = rim::engine(config, told_of, shown)?;
            let _ = tell.send(orders);
            let ended = rim::run(&mut engine, steady_ns);
            engine.close();
            ended
        };
        let thread = thread::Builder::new().name("engine".into()).spawn(run).map_err(system("start a thread"))?;
        match told.recv() {
            Ok(orders) => Ok(Self { orders, pressure, thread, processors }),
            Err(_) => match thread.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                Err(error) => Err(error),
                Ok(()) => Err(system("start")(std::io::ErrorKind::Other.into())),
            },
        }
    }

    /// The way to tell it something.
    #[must_use]
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// What is in flight.
    #[must_use]
    pub fn pressure(&self) -> Arc<Pressure> {
        self.pressure.clone()
    }

    /// Stops it and gives the sinks back.
    ///
    /// # Errors
    /// [`EngineError`]: it had stopped by itself.
    pub fn stop(self) -> Result<Vec<S>, EngineError> {
        self.orders.stop();
        // All, before any one's panic goes on: no sink must outlive what it writes to.
        let ended = self.thread.join();
        let sinks: Vec<_> = self.processors.into_iter().map(JoinHandle::join).collect();
        ended.unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(sinks.into_iter().map(|sink| sink.unwrap_or_else(|panic| resume_unwind(panic))).collect())
    }

    /// It has stopped by itself; [`Running::stop`] says why.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}
