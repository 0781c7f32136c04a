// SPDX-License-Identifier: Apache-2.0
//! Expands a template: walks its nodes, as Go's `text/template` does.

use std::rc::Rc;

use super::context::Context;
use super::function::{Function, Takes};
use super::parse::{Command, Control, Node, Operand, Parsed, Pipe, Term};
use super::value::{Labels, Ns, Text, Value};
use super::{Ask, Data, ExpandError, Limits, method};

/// Lists of nodes and pipes within each other, through templates, too.
const MAX_DEPTH: usize = 200;

/// One expansion.
pub(super) struct Run<'a> {
    template: &'a Parsed,
    context: Context<'a>,
    labels: Labels,
    external_labels: Labels,
    depth: usize,
    out: Text,
    variables: Vec<(&'a str, Value)>,
    /// Byte of the template that is being looked at.
    at: usize,
}

/// What follows a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

type Result<T> = std::result::Result<T, String>;

pub(super) fn run(
    template: &Parsed,
    data: &Data<'_>,
    ask: &mut dyn Ask,
    limits: Limits,
) -> std::result::Result<String, ExpandError> {
    let mut run = Run {
        template,
        context: Context::new(data, ask, limits),
        labels: Rc::new(data.labels.clone()),
        external_labels: Rc::new(data.external_labels.clone()),
        depth: 0,
        out: Text::new(limits.bytes),
        variables: Vec::new(),
        at: 0,
    };
    for (name, field) in [
        ("$", ""),
        ("$labels", "Labels"),
        ("$externalLabels", "ExternalLabels"),
        ("$externalURL", "ExternalURL"),
        ("$value", "Value"),
    ] {
        let value = if field.is_empty() { Some(Value::Data) } else { run.data_field(field) };
        run.variables.push((name, value.unwrap_or(Value::Nil)));
    }
    match run.list(&template.nodes, &Value::Data) {
        Ok(_) => Ok(run.out.text),
        Err(text) => Err(ExpandError { at: run.at, text }),
    }
}

impl<'a> Run<'a> {
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of templates, controls and parentheses"));
        }
        self.depth += 1;
        let inner = inner(self);
        self.depth -= 1;
        inner
    }

    /// The variables that it declares end with it.
    fn list(&mut self, nodes: &'a [Node], dot: &Value) -> Result<Flow> {
        self.deeper(|run| {
            for node in nodes {
                run.context.work(1)?;
                let flow = run.node(node, dot)?;
                if flow != Flow::On {
                    return Ok(flow);
                }
            }
            Ok(Flow::On)
        })
    }

    fn node(&mut self, node: &'a Node, dot: &Value) -> Result<Flow> {
        match node {
            Node::Text(text) => self.out.push(text)?,
            Node::Action(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.variables.is_empty() {
                    match value {
                        Value::Nil => self.out.push("<no value>")?,
                        value => self.out.show(&value)?,
                    }
                }
            }
            Node::If(control) | Node::With(control) => {
                let declared = self.variables.len();
                let value = self.pipe(&control.pipe, dot)?;
                let flow = match (value.is_true(), node) {
                    (true, Node::With(_)) => self.list(&control.then, &value),
                    (true, _) => self.list(&control.then, dot),
                    (false, _) => self.list(&control.otherwise, dot),
                };
                self.variables.truncate(declared);
                return flow;
            }
            Node::Range(control) => {
                let declared = self.variables.len();
                let flow = self.range(control, dot);
                self.variables.truncate(declared);
                return flow;
            }
            Node::Template { name, pipe, at } => {
                let dot = pipe.as_ref().map_or(Ok(Value::Nil), |pipe| self.pipe(pipe, dot))?;
                self.at = *at;
                let template = self.template;
                let nodes = template.defined.get(name).ok_or_else(|| format!("template {name:?} not defined"))?;
                let outside = std::mem::replace(&mut self.variables, vec![("$", dot.clone())]);
                self.list(nodes, &dot)?;
                self.variables = outside;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    fn range(&mut self, control: &'a Control, dot: &Value) -> Result<Flow> {
        let pipe = &control.pipe;
        // They are there while it is calculated, and hold the whole.
        let over = self.pipe(pipe, dot)?;
        let mark = self.variables.len();
        let turn = |run: &mut Self, key: Value, item: Value| {
            run.context.work(1)?;
            match pipe.variables.as_slice() {
                [one] => run.set(one, item.clone(), pipe.is_assignment, mark, 1)?,
                [first, second] => {
                    run.set(second, item.clone(), pipe.is_assignment, mark, 1)?;
                    run.set(first, key, pipe.is_assignment, mark, 2)?;
                }
                _ => {}
            }
            let flow = run.list(&control.then, &item);
            run.variables.truncate(mark);
            flow
        };
        let mut is_empty = true;
        let mut all = |run: &mut Self, items: &mut dyn Iterator<Item = (Value, Value)>| {
            for (key, item) in items {
                is_empty = false;
                if turn(run, key, item)? == Flow::Break {
                    break;
                }
            }
            Ok::<_, String>(())
        };
        let place = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
        match &over {
            Value::Int(_) | Value::Named(..) | Value::Duration(Ns { is_pointer: false, .. })
                if pipe.variables.len() > 1 =>
            {
                return Err("an integer gives a range one variable only".to_owned());
            }
            Value::Int(count) => all(self, &mut (0..*count).map(|at| (Value::Nil, Value::Int(at))))?,
            Value::Samples(samples) => all(
                self,
                &mut samples.iter().enumerate().map(|(at, sample)| (place(at), Value::Sample(sample.clone()))),
            )?,
            Value::Labels(labels) => {
                all(self, &mut labels.iter().map(|(key, value)| (Value::text(key), Value::text(value))))?;
            }
            Value::Arguments(arguments) => {
                all(self, &mut arguments.values.iter().map(|(key, value)| (Value::text(key), value.clone())))?;
            }
            Value::Nil => {}
            other => return Err(format!("range can't iterate over {}", other.kind())),
        }
        if is_empty {
            // A `break` there, within an outer range, ends this one.
            let flow = self.list(&control.otherwise, dot)?;
            return Ok(if flow == Flow::Break { Flow::On } else { flow });
        }
        Ok(Flow::On)
    }

    /// Sets a variable that is there; or, of a range's own ones, the last but so many, counted from 1.
    fn set(&mut self, name: &str, value: Value, is_assignment: bool, mark: usize, from_end: usize) -> Result<()> {
        let place = if is_assignment {
            self.variables.iter().rposition(|(known, _)| *known == name)
        } else {
            mark.checked_sub(from_end)
        };
        let place = place.ok_or_else(|| format!("undefined variable: {name}"))?;
        self.variables[place].1 = value;
        Ok(())
    }

    fn pipe(&mut self, pipe: &'a Pipe, dot: &Value) -> Result<Value> {
        self.deeper(|run| {
            let mut value = None;
            for command in &pipe.commands {
                value = Some(run.command(command, dot, value)?);
            }
            let value = value.unwrap_or(Value::Nil);
            for name in &pipe.variables {
                if pipe.is_assignment {
                    run.set(name, value.clone(), true, 0, 0)?;
                } else {
                    run.variables.push((name, value.clone()));
                }
            }
            Ok(value)
        })
    }

    /// With what the command before it gave.
    fn command(&mut self, command: &'a Command, dot: &Value, last: Option<Value>) -> Result<Value> {
        let Command { first, arguments } = command;
        self.at = first.at;
        if let (Term::Function(function), []) = (&first.term, first.fields.as_slice()) {
            return self.call(function, arguments, dot, last);
        }
        if let ([fields @ .., method], false) = (first.fields.as_slice(), arguments.is_empty() && last.is_none()) {
            let receiver = self.term(&first.term, dot)?;
            let receiver = self.fields(receiver, fields)?;
            return self.method(&receiver, method, arguments, dot, last);
        }
        if !arguments.is_empty() || last.is_some() {
            return Err("can't give argument to non-function".to_owned());
        }
        if matches!(first.term, Term::Nil) {
            return Err("nil is not a command".to_owned());
        }
        self.operand(first, dot)
    }

    fn operand(&mut self, operand: &'a Operand, dot: &Value) -> Result<Value> {
        self.context.work(1)?;
        let value = self.term(&operand.term, dot)?;
        self.at = operand.at;
        self.fields(value, &operand.fields)
    }

    fn term(&mut self, term: &'a Term, dot: &Value) -> Result<Value> {
        Ok(match term {
            Term::Dot => dot.clone(),
            Term::Nil => Value::Nil,
            Term::Bool(value) => Value::Bool(*value),
            Term::Int(value) => Value::Int(*value),
            Term::Float(value) => Value::Float(*value),
            Term::Text(text) => Value::text(text),
            Term::Variable(name) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone()).ok_or_else(|| format!("undefined variable: {name}"))?
            }
            Term::Function(function) => self.call(function, &[], dot, None)?,
            Term::Pipe(pipe) => self.pipe(pipe, dot)?,
        })
    }

    fn call(
        &mut self,
        function: &Function,
        operands: &'a [Operand],
        dot: &Value,
        last: Option<Value>,
    ) -> Result<Value> {
        let at = self.at;
        let is_lazy = matches!(function.name, "and" | "or");
        let count = operands.len() + usize::from(last.is_some());
        if count < function.takes.len() || (count > function.takes.len() && !function.more) {
            let least = if function.more { "at least " } else { "" };
            let takes = function.takes.len();
            return Err(format!("wrong number of args for {}: want {least}{takes} got {count}", function.name));
        }
        let mut values = Vec::with_capacity(count);
        for operand in operands {
            let takes = function.takes.get(values.len()).copied().unwrap_or(Takes::Any);
            let value = taken(self.operand(operand, dot)?, takes)?;
            if is_lazy && value.is_true() == (function.name == "or") {
                return Ok(value);
            }
            values.push(value);
        }
        if let Some(last) = last {
            let takes = function.takes.get(values.len()).copied().unwrap_or(Takes::Any);
            values.push(taken(last, takes)?);
        }
        // What reads or makes long texts takes longer.
        let bytes = |value: &Value| if let Value::Text(text) | Value::Html(text) = value { text.len() } else { 0 };
        self.at = at;
        self.context.work(1 + values.iter().map(bytes).sum::<usize>() / 64)?;
        let value = (function.run)(&mut self.context, &values)
            .map_err(|why| format!("error calling {}: {why}", function.name))?;
        if bytes(&value) > self.context.limits.bytes {
            return Err(format!("a text of more than {} bytes", self.context.limits.bytes));
        }
        self.context.work(bytes(&value) / 64)?;
        Ok(value)
    }

    /// `.a.b` of a value.
    fn fields(&mut self, value: Value, fields: &'a [String]) -> Result<Value> {
        let mut value = value;
        for (at, name) in fields.iter().enumerate() {
            self.context.work(1)?;
            let is_missing = matches!((&value, at), (Value::Nil, 1..));
            if is_missing {
                return Err(format!("nil pointer evaluating interface {{}}.{name}"));
            }
            value = match self.field(&value, name) {
                Some(found) => found,
                None => method::method(&value, name, &[]).ok_or_else(|| no_field(&value, name))?,
            };
        }
        Ok(value)
    }

    fn field(&self, value: &Value, name: &str) -> Option<Value> {
        match value {
            // As a template has it that was given nothing.
            Value::Nil => Some(Value::Nil),
            Value::Data => self.data_field(name),
            // Labels that a series does not have are empty.
            Value::Labels(labels) => Some(Value::text(labels.get(name).map_or("", String::as_str))),
            Value::Arguments(arguments) => Some(arguments.values.get(name).cloned().unwrap_or(Value::Nil)),
            Value::Sample(sample) => match name {
                "Labels" => Some(Value::Labels(sample.labels.clone())),
                "Value" => Some(Value::Float(sample.value)),
                _ => None,
            },
            _ => None,
        }
    }

    fn data_field(&self, name: &str) -> Option<Value> {
        match name {
            "Labels" => Some(Value::Labels(self.labels.clone())),
            "ExternalLabels" => Some(Value::Labels(self.external_labels.clone())),
            "ExternalURL" => Some(Value::text(self.context.data.external_url)),
            "Value" => Some(Value::Float(self.context.data.value)),
            _ => None,
        }
    }

    fn method(
        &mut self,
        receiver: &Value,
        name: &str,
        operands: &'a [Operand],
        dot: &Value,
        last: Option<Value>,
    ) -> Result<Value> {
        let mut arguments = operands.iter().map(|operand| self.operand(operand, dot)).collect::<Result<Vec<_>>>()?;
        arguments.extend(last);
        self.context.work(1)?;
        match method::method(receiver, name, &arguments) {
            Some(value) => Ok(value),
            None if self.field(receiver, name).is_some() => Err(format!("{name} is not a method but has arguments")),
            None => Err(no_field(receiver, name)),
        }
    }
}

fn no_field(value: &Value, name: &str) -> String {
    format!("can't evaluate field {name} in type {}", value.kind())
}

/// What a function that takes this gets.
fn taken(value: Value, takes: Takes) -> Result<Value> {
    let expected = match (takes, &value) {
        (Takes::Any, _) | (Takes::Text, Value::Text(_)) => return Ok(value),
        (Takes::Sample, Value::Sample(_) | Value::Nil) | (Takes::Samples, Value::Samples(_)) => return Ok(value),
        (Takes::Samples, Value::Nil) => return Ok(Value::Samples(Rc::new([]))),
        (Takes::Text, _) => "string",
        (Takes::Sample, _) => "a sample",
        (Takes::Samples, _) => "the result of a query",
    };
    Err(format!("wrong type for value; expected {expected}; got {}", value.kind()))
}
