//! The tokens of an answer: columns, rows, errors and the end.

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row, from values of any type.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::peer::tokens::Value::from($value)),*] };
}

pub(crate) use row;

pub(crate) type Row = Vec<Value>;

/// An error of the server.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) number: u32,
    pub(crate) class: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(number: u32, message: &str) -> Self {
        Self { number, class: 16, message: message.to_owned() }
    }
}

/// An answer to a batch: the rows of its statements, and perhaps an error that ended it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) results: Vec<Vec<Row>>,
    pub(crate) failure: Option<Failure>,
}

impl Answer {
    pub(crate) fn row(row: Row) -> Self {
        Self { results: vec![vec![row]], failure: None }
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        Self { results: Vec::new(), failure: Some(failure) }
    }

    /// Returns the tokens of the answer.
    pub(crate) fn tokens(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for rows in &self.results {
            result(rows, &mut bytes);
        }
        if let Some(failure) = &self.failure {
            error(failure, &mut bytes);
        }
        // Of a procedure: its status, and its end with or without an error.
        bytes.extend([0x79, 0, 0, 0, 0]);
        end(0xfe, if self.failure.is_some() { 2 } else { 0 }, &mut bytes);
        bytes
    }
}

/// Returns the answer to a log-in: TDS 7.4, or an error.
pub(crate) fn login(refused: Option<&Failure>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(failure) = refused {
        error(failure, &mut bytes);
        end(0xfd, 2, &mut bytes);
        return bytes;
    }
    let mut ack = vec![1, 0x74, 0, 0, 4];
    short_text("Peer", &mut ack);
    ack.extend([16, 0, 0, 0]);
    bytes.push(0xad);
    bytes.extend((ack.len() as u16).to_le_bytes());
    bytes.extend(ack);
    end(0xfd, 0, &mut bytes);
    bytes
}

fn end(token: u8, status: u16, bytes: &mut Vec<u8>) {
    bytes.push(token);
    bytes.extend(status.to_le_bytes());
    bytes.extend([0; 10]);
}

fn error(failure: &Failure, bytes: &mut Vec<u8>) {
    let mut body = Vec::new();
    body.extend(failure.number.to_le_bytes());
    body.extend([1, failure.class]);
    let units: Vec<u16> = failure.message.encode_utf16().collect();
    body.extend((units.len() as u16).to_le_bytes());
    body.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    short_text("PEER", &mut body);
    short_text("", &mut body);
    body.extend(1_u32.to_le_bytes());
    bytes.push(0xaa);
    bytes.extend((body.len() as u16).to_le_bytes());
    bytes.extend(body);
}

/// The columns and the rows of a statement. A column has the type of its first value.
fn result(rows: &[Row], bytes: &mut Vec<u8>) {
    let columns = rows.first().map_or(1, Vec::len);
    let kind = |column: usize| rows.iter().map(|row| &row[column]).find(|value| **value != Value::Null);
    bytes.push(0x81);
    bytes.extend((columns as u16).to_le_bytes());
    for column in 0..columns {
        bytes.extend([0, 0, 0, 0, 1, 0]);
        match kind(column) {
            Some(Value::Number(_)) => bytes.extend([0x26, 8]),
            Some(Value::Bytes(_)) => bytes.extend([0xa5, 0xff, 0xff]),
            _ => bytes.extend([0xe7, 0xff, 0xff, 9, 4, 0xd0, 0, 0x34]),
        }
        short_text("", bytes);
    }
    for row in rows {
        bytes.push(0xd1);
        for (column, value) in row.iter().enumerate() {
            match (value, kind(column)) {
                (Value::Number(number), _) => {
                    bytes.push(8);
                    bytes.extend(number.to_le_bytes());
                }
                (Value::Text(text), _) => long(text.encode_utf16().flat_map(u16::to_le_bytes).collect(), bytes),
                (Value::Bytes(value), _) => long(value.clone(), bytes),
                (Value::Null, Some(Value::Number(_))) => bytes.push(0),
                (Value::Null, _) => bytes.extend([0xff; 8]),
            }
        }
    }
    end(0xff, 1, bytes);
}

/// A value of any length, in one part.
fn long(value: Vec<u8>, bytes: &mut Vec<u8>) {
    bytes.extend((value.len() as u64).to_le_bytes());
    if !value.is_empty() {
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(value);
    }
    bytes.extend([0; 4]);
}

fn short_text(text: &str, bytes: &mut Vec<u8>) {
    let units: Vec<u16> = text.encode_utf16().collect();
    bytes.push(units.len() as u8);
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
}
