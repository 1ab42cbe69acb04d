//! The machinery behind the table of options in `options.rs`: from one row come the field, the key of a file, the
//! variable, the flag, the method of the builder and the documentation.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::span;

/// A row of the table of options, for programs that offer options as flags or print their documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The name in files and code, such as `renew_every`. The variable is `TENURE_RENEW_EVERY`.
    pub name: &'static str,
    /// The heading that it belongs under.
    pub group: &'static str,
    /// The kind of its value, such as `TIME`.
    pub kind: &'static str,
    /// The default, as people read it.
    pub default: &'static str,
    /// The description, one paragraph.
    pub doc: &'static str,
}

/// The type of an option's value.
pub(super) trait Value: Sized {
    /// What the value is called in help texts.
    const KIND: &'static str;

    /// Reads the text of a variable or a flag.
    fn parse(text: &str) -> Result<Self, String>;

    /// Reads a value from whatever serde reads.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;

    /// Writes it so that `read` reads it back.
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;
}

/// A [`Value`], as serde wants to read it.
pub(super) struct Read<T>(pub(super) T);

impl<'de, T: Value> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

/// A [`Value`], as serde wants to write it.
pub(super) struct Written<'a, T>(pub(super) &'a T);

impl<T: Value> Serialize for Written<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(to)
    }
}

impl Value for Duration {
    const KIND: &'static str = "TIME";

    fn parse(text: &str) -> Result<Self, String> {
        span::parse(text)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a duration, like \"15s\"")]
        enum Given {
            Text(String),
            Number(f64),
        }
        match Given::deserialize(from)? {
            Given::Text(text) => span::parse(&text).map_err(serde::de::Error::custom),
            Given::Number(number) => Err(serde::de::Error::custom(format!(
                "{number} is not a duration: write it with its unit, like \"{number}s\""
            ))),
        }
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&span::show(*self))
    }
}

impl Value for f64 {
    const KIND: &'static str = "NUMBER";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} is not a number"))
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.serialize(to)
    }
}

impl Value for i32 {
    const KIND: &'static str = "N";

    fn parse(text: &str) -> Result<Self, String> {
        let number: i64 = text.parse().map_err(|_| format!("{text:?} is not a whole number"))?;
        in_range(number)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        in_range(i64::deserialize(from)?).map_err(serde::de::Error::custom)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.serialize(to)
    }
}

fn in_range(number: i64) -> Result<i32, String> {
    let problem = || format!("{number} is out of range: use a whole number from {} to {}", i32::MIN, i32::MAX);
    i32::try_from(number).map_err(|_| problem())
}

impl Value for bool {
    const KIND: &'static str = "BOOL";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "1" | "true" | "yes" | "on" => Ok(true),
            "0" | "false" | "no" | "off" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        }
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.serialize(to)
    }
}

impl Value for String {
    const KIND: &'static str = "TEXT";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.serialize(to)
    }
}

/// A setting that is one of a few words. Options of stores use it with `#[serde(with = "tenure_core::word")]`.
pub trait Word: Copy + PartialEq + 'static {
    /// All words, each with what it stands for.
    const WORDS: &'static [(&'static str, Self)];
}

/// Reads and writes a [`Word`] with serde: `#[serde(with = "tenure_core::word")]`.
pub mod word {
    use serde::{Deserializer, Serializer};

    use super::{Value, Word};

    /// Writes the word.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: Word, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.write(to)
    }

    /// Reads one of the words.
    ///
    /// # Errors
    /// If it is none of them; the error lists them.
    pub fn deserialize<'de, T: Word, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(from)
    }
}

impl<T: Word> Value for T {
    const KIND: &'static str = "WORD";

    fn parse(text: &str) -> Result<Self, String> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        found.map(|(_, value)| *value).ok_or_else(|| format!("{text:?} is not one of {}", words.join(", ")))
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let found = T::WORDS.iter().find(|(_, value)| value == self);
        to.serialize_str(found.map_or("", |(word, _)| *word))
    }
}

/// Makes [`ElectionOptions`](crate::ElectionOptions) and everything that lists its options from one table.
///
/// `metadata` is not in the table: it is a map, and layers add to it.
macro_rules! election_options {
    (
        $(#[$attribute:meta])*
        options {$(
            $group:literal {$(
                $(#[doc = $doc:literal])+
                $name:ident: $type:tt = $default:literal;
            )+}
        )+}
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct ElectionOptions {
            $($(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: ", $default, ".")]
                pub $name: Option<$type>,
            )+)+
            /// Pairs of text that the leader and the list of candidates show. Layers add to it.
            pub metadata: BTreeMap<String, String>,
        }

        impl ElectionOptions {
            /// Lists all options but `metadata`, group by group.
            pub const TABLE: &'static [OptionInfo] = &[$($(OptionInfo {
                name: stringify!($name),
                group: $group,
                kind: <$type as Value>::KIND,
                default: $default,
                doc: concat!($($doc),+),
            }),+),+];

            /// Puts the options of `over` over these: what `over` does not set stays as it is.
            #[must_use]
            pub fn overlaid(mut self, over: Self) -> Self {
                $($(self.$name = over.$name.or(self.$name);)+)+
                self.metadata.extend(over.metadata);
                self
            }

            /// Sets the option with this name to what a text says, as variables and flags have it. The text of
            /// `metadata` is of the form `key=value,key=value`, and adds to it.
            ///
            /// # Errors
            /// In one line, if there is no such option or the text is not a value for it.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), Error> {
                let value = match name {
                    $($(stringify!($name) => Value::parse(text).map(|value| self.$name = Some(value)),)+)+
                    "metadata" => pairs(text).map(|pairs| self.metadata.extend(pairs)),
                    _ => return Err(Error::Option(names::unknown("", name, FIELDS))),
                };
                value.map_err(|problem| Error::Option(format!("{name}: {problem}")))
            }
        }

        impl Serialize for ElectionOptions {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = to.serialize_map(None)?;
                $($(if let Some(value) = &self.$name {
                    map.serialize_entry(stringify!($name), &Written(value))?;
                })+)+
                if !self.metadata.is_empty() {
                    map.serialize_entry("metadata", &self.metadata)?;
                }
                map.end()
            }
        }

        impl<'de> Deserialize<'de> for ElectionOptions {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Options;

                impl<'de> Visitor<'de> for Options {
                    type Value = ElectionOptions;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("the options of an election")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ElectionOptions, A::Error> {
                        let mut options = ElectionOptions::default();
                        while let Some(name) = map.next_key::<String>()? {
                            match name.as_str() {
                                $($(stringify!($name) => {
                                    let value: Option<Read<$type>> = map.next_value()?;
                                    options.$name = value.map(|value| value.0);
                                })+)+
                                "metadata" => options.metadata = map.next_value()?,
                                _ => return Err(serde::de::Error::custom(names::unknown("", &name, FIELDS))),
                            }
                        }
                        Ok(options)
                    }
                }

                from.deserialize_map(Options)
            }
        }

        impl Builder {
            $($(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: ", $default, ".")]
                pub fn $name(mut self, $name: election_options!(@argument $type)) -> Self {
                    self.options.$name = Some($name.into());
                    self
                }
            )+)+
        }

        /// The names of all options.
        pub(super) const FIELDS: &[&str] = &[$($(stringify!($name),)+)+ "metadata"];
    };
    (@argument String) => { impl Into<String> };
    (@argument $type:tt) => { $type };
}

pub(super) use election_options;
