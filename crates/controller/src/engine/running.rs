// SPDX-License-Identifier: Apache-2.0
//! The engine's thread and the processor's, from start to stop.

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
    processor: JoinHandle<S>,
}

impl<S: Sink + Send + 'static> Running<S> {
    /// Starts an engine and the processor that has the sink, each on a thread of its own, without hosts yet.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn start(config: Config, sink: S) -> Result<Self, EngineError> {
        let (tell, told) = channel();
        let pressure = Arc::new(Pressure::default());
        let shown = pressure.clone();
        let (told_of, processor) = Processor::start(sink).map_err(system("start a thread"))?;
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
            Ok(orders) => Ok(Self { orders, pressure, thread, processor }),
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

    /// Stops it and gives the sink back.
    ///
    /// # Errors
    /// [`EngineError`]: it had stopped by itself.
    pub fn stop(self) -> Result<S, EngineError> {
        self.orders.stop();
        // Both, before either's panic goes on: the sink must not outlive what it writes to.
        let (ended, sink) = (self.thread.join(), self.processor.join());
        ended.unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(sink.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// It has stopped by itself; [`Running::stop`] says why.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}
