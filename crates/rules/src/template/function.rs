// SPDX-License-Identifier: Apache-2.0
//! The functions of templates: Go's, and Prometheus'. Each says what it takes; [`super::run`] sees to that.

use std::net::IpAddr;
use std::rc::Rc;

use onlooker_promql::rust_pattern;
use regex::{Regex, RegexBuilder};

use super::context::Context;
use super::number::{humanize, humanize_1024, humanize_duration, humanize_percentage, parse_duration};
use super::printf::printf;
use super::value::{Arguments, Ns, Sample, Text, Value};
use super::{compare, time};

/// Arguments of arguments at most.
const MAX_DEPTH: usize = 16;
/// Bytes of a compiled regular expression at most.
const MAX_REGEX_BYTES: usize = 1 << 20;

type Answer = Result<Value, String>;

/// What an argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Any,
    Text,
    Sample,
    Samples,
}

#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) takes: &'static [Takes],
    /// Any number of these may follow.
    pub(super) more: bool,
    pub(super) run: fn(&mut Context<'_>, &[Value]) -> Answer,
}

/// The names of all.
pub fn functions() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|function| function.name)
}

/// By its name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

const fn of(name: &'static str, takes: &'static [Takes], run: fn(&mut Context<'_>, &[Value]) -> Answer) -> Function {
    Function { name, takes, more: false, run }
}

const fn more(name: &'static str, takes: &'static [Takes], run: fn(&mut Context<'_>, &[Value]) -> Answer) -> Function {
    Function { name, takes, more: true, run }
}

use Takes::{Any, Samples as Many, Text as String_};

static FUNCTIONS: &[Function] = &[
    // These two look at no more arguments than they need: `Run::call` sees to that.
    more("and", &[Any], |_, values| Ok(values[values.len() - 1].clone())),
    more("or", &[Any], |_, values| Ok(values[values.len() - 1].clone())),
    of("not", &[Any], |_, values| Ok(Value::Bool(!values[0].is_true()))),
    more("eq", &[Any], |_, values| compare::equal(&values[0], &values[1..]).map(Value::Bool)),
    of("ne", &[Any, Any], |_, values| Ok(Value::Bool(!compare::equal(&values[0], &values[1..])?))),
    of("lt", &[Any, Any], |_, values| compare::less(&values[0], &values[1]).map(Value::Bool)),
    of("le", &[Any, Any], |_, values| compare::less_or_equal(&values[0], &values[1]).map(Value::Bool)),
    of("gt", &[Any, Any], |_, values| Ok(Value::Bool(!compare::less_or_equal(&values[0], &values[1])?))),
    of("ge", &[Any, Any], |_, values| Ok(Value::Bool(!compare::less(&values[0], &values[1])?))),
    of("len", &[Any], |_, values| len(&values[0])),
    more("index", &[Any], |_, values| index(&values[0], &values[1..])),
    more("slice", &[Any], |_, values| slice(&values[0], &values[1..])),
    more("call", &[Any], |_, _| Err("non-function".to_owned())),
    more("print", &[], |context, values| print(context, values).map(Value::text)),
    more("println", &[], |context, values| {
        let mut out = Text::new(context.limits.bytes);
        for (at, value) in values.iter().enumerate() {
            out.push(if at > 0 { " " } else { "" })?;
            out.show(value)?;
        }
        out.push("\n")?;
        Ok(Value::text(out.text))
    }),
    more("printf", &[String_], |context, values| {
        printf(text(&values[0]), &values[1..], context.limits.bytes).map(Value::text)
    }),
    more("html", &[], |context, values| {
        let text = print(context, values)?;
        Ok(Value::text(text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
            match c {
                '\0' => out.push('\u{fffd}'),
                '"' => out.push_str("&#34;"),
                '\'' => out.push_str("&#39;"),
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                _ => out.push(c),
            }
            out
        })))
    }),
    more("js", &[], |context, values| Ok(Value::text(script(&print(context, values)?)))),
    more("urlquery", &[], |context, values| Ok(Value::text(query_escaped(&print(context, values)?)))),
    of("query", &[String_], |context, values| context.query(text(&values[0]))),
    of("first", &[Many], |_, values| match samples(&values[0]).first() {
        Some(sample) => Ok(Value::Sample(sample.clone())),
        None => Err("first() called on vector with no elements".to_owned()),
    }),
    of("label", &[String_, Takes::Sample], |_, values| label(&values[1], text(&values[0]))),
    of("value", &[Takes::Sample], |_, values| match &values[0] {
        Value::Sample(sample) => Ok(Value::Float(sample.value)),
        _ => Err("nil pointer".to_owned()),
    }),
    of("strvalue", &[Takes::Sample], |_, values| label(&values[0], "__value__")),
    of("sortByLabel", &[String_, Many], |_, values| {
        let by = |sample: &Rc<Sample>| sample.labels.get(text(&values[0])).cloned().unwrap_or_default();
        let mut samples = samples(&values[1]).to_vec();
        samples.sort_by_cached_key(by);
        Ok(Value::Samples(samples.into()))
    }),
    more("args", &[], |_, values| {
        let depth_of = |value: &Value| if let Value::Arguments(inner) = value { inner.depth + 1 } else { 0 };
        let depth = values.iter().map(depth_of).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} args() within each other"));
        }
        let values = values.iter().enumerate().map(|(at, value)| (format!("arg{at}"), value.clone())).collect();
        Ok(Value::Arguments(Rc::new(Arguments { values, depth })))
    }),
    of("match", &[String_, String_], |context, values| {
        Ok(Value::Bool(regex(context, text(&values[0]))?.is_match(text(&values[1]))))
    }),
    of("reReplaceAll", &[String_, String_, String_], |context, values| {
        let regex = regex(context, text(&values[0]))?;
        replaced(&regex, text(&values[1]), text(&values[2]), context.limits.bytes)
    }),
    of("safeHtml", &[String_], |_, values| Ok(Value::Html(text(&values[0]).into()))),
    of("title", &[String_], |_, values| Ok(Value::text(title(text(&values[0]))))),
    of("toUpper", &[String_], |_, values| {
        Ok(Value::text(text(&values[0]).chars().map(|c| single(c.to_uppercase(), c)).collect::<String>()))
    }),
    of("toLower", &[String_], |_, values| {
        Ok(Value::text(text(&values[0]).chars().map(|c| single(c.to_lowercase(), c)).collect::<String>()))
    }),
    of("humanize", &[Any], |_, values| Ok(Value::text(humanize(values[0].number()?)))),
    of("humanize1024", &[Any], |_, values| Ok(Value::text(humanize_1024(values[0].number()?)))),
    of("humanizeDuration", &[Any], |_, values| Ok(Value::text(humanize_duration(values[0].number()?)))),
    of("humanizePercentage", &[Any], |_, values| Ok(Value::text(humanize_percentage(values[0].number()?)))),
    of("humanizeTimestamp", &[Any], |_, values| match values[0].number()? {
        seconds if seconds.is_finite() => Ok(Value::text(time::shown(time::of_seconds(seconds)?))),
        seconds => Ok(Value::text(humanize(seconds))),
    }),
    of("toTime", &[Any], |_, values| {
        Ok(Value::Time(Ns { ns: time::of_seconds(values[0].number()?)?, is_pointer: true }))
    }),
    of("toDuration", &[Any], |_, values| {
        #[allow(clippy::cast_possible_truncation)] // saturates
        let ns = (values[0].number()? * 1e9) as i64;
        Ok(Value::Duration(Ns { ns, is_pointer: true }))
    }),
    of("now", &[], |context, _| {
        #[allow(clippy::cast_precision_loss)]
        let ms = (context.data.time_ns / 1_000_000) as f64;
        Ok(Value::Float(ms / 1000.0))
    }),
    of("parseDuration", &[String_], |_, values| parse_duration(text(&values[0])).map(Value::Float)),
    of("stripPort", &[String_], |_, values| {
        let address = text(&values[0]);
        Ok(Value::text(host_and_port(address).map_or(address, |(host, _)| host)))
    }),
    of("stripDomain", &[String_], |_, values| Ok(Value::text(without_domain(text(&values[0]))))),
    of("urlQueryEscape", &[String_], |_, values| Ok(Value::text(query_escaped(text(&values[0]))))),
    of("graphLink", &[String_], |_, values| Ok(Value::text(link(text(&values[0]), 0)))),
    of("tableLink", &[String_], |_, values| Ok(Value::text(link(text(&values[0]), 1)))),
    of("externalURL", &[], |context, _| Ok(Value::text(context.data.external_url))),
    of("pathPrefix", &[], |context, _| Ok(Value::text(path(context.data.external_url)))),
];

fn text(value: &Value) -> &str {
    if let Value::Text(text) = value { text } else { "" }
}

fn samples(value: &Value) -> &[Rc<Sample>] {
    if let Value::Samples(samples) = value { samples } else { &[] }
}

fn label(sample: &Value, label: &str) -> Answer {
    match sample {
        Value::Sample(sample) => Ok(Value::text(sample.labels.get(label).map_or("", String::as_str))),
        _ => Err("nil pointer".to_owned()),
    }
}

/// Go has one character for one.
fn single(mut mapped: impl Iterator<Item = char>, c: char) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(mapped), None) => mapped,
        // The one that has a single small one in Go.
        _ if c == '\u{130}' => 'i',
        _ => c,
    }
}

/// Texts are not told apart, everything else is.
fn print(context: &Context<'_>, values: &[Value]) -> Result<String, String> {
    let mut out = Text::new(context.limits.bytes);
    for (at, value) in values.iter().enumerate() {
        let is_text = |value: &Value| matches!(value, Value::Text(_) | Value::Html(_));
        out.push(if at > 0 && !is_text(value) && !is_text(&values[at - 1]) { " " } else { "" })?;
        out.show(value)?;
    }
    Ok(out.text)
}

fn len(value: &Value) -> Answer {
    let len = match value {
        Value::Text(text) | Value::Html(text) => text.len(),
        Value::Labels(labels) => labels.len(),
        Value::Arguments(arguments) => arguments.values.len(),
        Value::Samples(samples) => samples.len(),
        _ => return Err(format!("len of type {}", value.kind())),
    };
    Ok(Value::Int(i64::try_from(len).unwrap_or(i64::MAX)))
}

fn place(index: &Value, most: usize) -> Result<usize, String> {
    let Value::Int(index) = index else { return Err(format!("cannot index slice/array with type {}", index.kind())) };
    let place = usize::try_from(*index).ok().filter(|place| *place <= most);
    place.ok_or_else(|| format!("index out of range: {index}"))
}

fn index(item: &Value, indexes: &[Value]) -> Answer {
    if matches!(item, Value::Nil) {
        return Err("index of untyped nil".to_owned());
    }
    let outside = || "index out of range".to_owned();
    let mut item = item.clone();
    for index in indexes {
        item = match (&item, index) {
            (Value::Text(text), _) => {
                let byte = text.as_bytes().get(place(index, text.len())?).copied().ok_or_else(outside)?;
                Value::Int(i64::from(byte))
            }
            (Value::Samples(samples), _) => {
                Value::Sample(samples.get(place(index, samples.len())?).ok_or_else(outside)?.clone())
            }
            (Value::Labels(labels), Value::Text(key)) => Value::text(labels.get(&**key).map_or("", String::as_str)),
            (Value::Arguments(inner), Value::Text(key)) => inner.values.get(&**key).cloned().unwrap_or(Value::Nil),
            _ => return Err(format!("can't index item of type {} with {}", item.kind(), index.kind())),
        };
    }
    Ok(item)
}

fn slice(item: &Value, indexes: &[Value]) -> Answer {
    let len = match item {
        Value::Text(text) => text.len(),
        Value::Samples(samples) => samples.len(),
        _ => return Err(format!("can't slice item of type {}", item.kind())),
    };
    if indexes.len() > 2 {
        return Err("too many slice indexes".to_owned());
    }
    let mut places = [0, len];
    for (place_of, index) in places.iter_mut().zip(indexes) {
        *place_of = place(index, len)?;
    }
    let [begin, end] = places;
    if begin > end {
        return Err(format!("invalid slice index: {begin} > {end}"));
    }
    Ok(match item {
        Value::Samples(samples) => Value::Samples(samples[begin..end].into()),
        _ => Value::text(String::from_utf8_lossy(&text(item).as_bytes()[begin..end])),
    })
}

/// As in a string of JavaScript.
fn script(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '\'' | '"' => out.extend(['\\', c]),
            '<' | '>' | '&' | '=' | '\0'..' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            '\u{80}'.. if c.escape_debug().len() > 1 => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out
}

/// As in the query of a URL.
fn query_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'_' | b'.' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn link(query: &str, tab: u8) -> String {
    format!("/graph?g0.expr={}&g0.tab={tab}", query_escaped(query))
}

fn path(url: &str) -> &str {
    let behind_scheme = url.find("://").map_or(0, |at| at + 3);
    let path = url[behind_scheme..].find('/').map_or("", |at| &url[behind_scheme + at..]);
    path.split(['?', '#']).next().unwrap_or("")
}

fn regex(context: &mut Context<'_>, pattern: &str) -> Result<Regex, String> {
    // Compiling takes as long as a thousand other steps.
    context.work(1_000)?;
    let built = RegexBuilder::new(&rust_pattern(pattern)).size_limit(MAX_REGEX_BYTES).build();
    built.map_err(|error| format!("regular expression {pattern:?}: {error}"))
}

/// All matches of `regex` in `text`; `$1` and `${name}` in `with` are its groups.
fn replaced(regex: &Regex, with: &str, text: &str, most: usize) -> Answer {
    let mut out = Text::new(most);
    let mut end = 0;
    for captures in regex.captures_iter(text) {
        let whole = captures.get_match();
        out.push(&text[end..whole.start()])?;
        let mut expanded = String::new();
        captures.expand(with, &mut expanded);
        out.push(&expanded)?;
        end = whole.end();
    }
    out.push(&text[end..])?;
    Ok(Value::text(out.text))
}

/// The first letter of each word as a capital; an apostrophe within a word does not end it.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_within = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_word = c.is_alphanumeric() || c == '_';
        let joins = matches!(c, '\'' | '.' | ':' | '\u{2019}' | '\u{b7}')
            && is_within
            && rest.peek().is_some_and(|next| next.is_alphabetic());
        if is_word && !is_within {
            capital(c, &mut out)
        } else {
            out.push(c)
        }
        is_within = if c.is_alphabetic() { true } else { (is_word || joins) && is_within };
    }
    out
}

/// As the first letter of a word. Of what becomes several letters only the first one is large.
fn capital(c: char, out: &mut String) {
    match c {
        '\u{1c4}'..='\u{1c6}' => out.push('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => out.push('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => out.push('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => out.push('\u{1f2}'),
        _ => {
            let mut letters = c.to_uppercase();
            out.extend(letters.next());
            out.extend(letters.flat_map(char::to_lowercase));
        }
    }
}

/// Of `HOST:PORT` and `[HOST]:PORT`.
fn host_and_port(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']')?;
            (!inner.contains(['[', ']']) && !port.contains(['[', ']'])).then_some((inner, port))
        }
        None => (!host.contains([':', '[', ']']) && !port.contains(['[', ']'])).then_some((host, port)),
    }
}

fn without_domain(address: &str) -> String {
    let (host, port) = host_and_port(address).unwrap_or((address, ""));
    let unzoned = host.split_once('%').filter(|(ip, zone)| ip.contains(':') && !zone.is_empty());
    if unzoned.map_or(host, |(ip, _)| ip).parse::<IpAddr>().is_ok() {
        return address.to_owned();
    }
    let name = host.split('.').next().unwrap_or(host);
    match port {
        "" => name.to_owned(),
        _ if name.contains(':') => format!("[{name}]:{port}"),
        _ => format!("{name}:{port}"),
    }
}
