// SPDX-License-Identifier: Apache-2.0
//! The configuration's targets and target files, at the start and again after SIGHUP, and rule files after it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onlooker_targets::{Book, Files, Say, Section};

use crate::config::{Config, ConfigError, Rules};
use crate::rules::{self, Evaluator};

/// What controller.toml has of targets.
pub(crate) struct Sources {
    path: PathBuf,
    book: Arc<Book>,
    files: Files,
    rules: Arc<Evaluator>,
    say: Say,
    /// As it is in force.
    config: Mutex<Config>,
}

/// Why targets do not come from a configuration.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The configuration, or a token.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The thread for target files.
    #[error("cannot watch target files: {0}")]
    Files(#[from] io::Error),
}

fn sections(config: &Config) -> Vec<Section> {
    config.discovery.iter().map(|discovery| Section::new(discovery, config.read.interval)).collect()
}

impl Sources {
    /// Has everything watched that `config`, read from `path`, names.
    ///
    /// # Errors
    /// [`SourcesError`]. Target files that cannot be used are none.
    pub(crate) fn start(
        path: &Path,
        config: &Config,
        book: Arc<Book>,
        rules: Arc<Evaluator>,
        say: Say,
    ) -> Result<Self, SourcesError> {
        book.set_config(config.read_targets(path)?);
        let files = Files::start(book.clone(), sections(config), say.clone())?;
        Ok(Self { path: path.into(), book, files, rules, say, config: Mutex::new(config.clone()) })
    }

    /// Reads the configuration again. One that cannot be used changes nothing, and that is told.
    pub(crate) fn reload(&self) {
        let path = self.path.display();
        let read = Config::load(&self.path).and_then(|config| Ok((config.read_targets(&self.path)?, config)));
        let (targets, new) = match read {
            Ok(read) => read,
            Err(error) => return (self.say)(&format!("{error}; the targets stay as they were")),
        };
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        self.book.set_config(targets);
        self.files.set(sections(&new));
        // As all rules of all files, or none: a rule may need what another file records.
        match rules::read(&new.rules) {
            Ok(groups) => self.rules.set(groups),
            Err(error) => (self.say)(&format!("{error}\nthe rules stay as they were")),
        }
        let Config { targets, discovery, rules: Rules { files, shipped, .. }, .. } = new.clone();
        let now =
            Config { targets, discovery, rules: Rules { files, shipped, ..config.rules.clone() }, ..config.clone() };
        let more = if now == new { "" } else { "; what else has changed there needs a restart" };
        (self.say)(&format!("{path}: [[targets]], [[discovery]] and the rule files were read again{more}"));
        *config = now;
    }
}
