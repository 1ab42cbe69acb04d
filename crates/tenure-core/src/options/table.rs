//! The macro behind the table of options in `options.rs`. Each row becomes a field, a key of the file, a variable, a
//! flag, a method of the builder and documentation.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::names::did_you_mean;
use crate::span;

/// A row of the table of options, for programs that offer options as flags or print their documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The name in files and code, such as `renew_every`. The variable is `TENURE_RENEW_EVERY`.
    pub name: &'static str,
    /// The heading under which help texts list the option.
    pub group: &'static str,
    /// The type of its value in help texts, such as `TIME`.
    pub kind: &'static str,
    /// The default as help texts show it, such as `lease / 3`.
    pub default: &'static str,
    /// The description in one paragraph of Markdown.
    pub doc: &'static str,
}

/// The type of an option's value.
pub(super) trait Value: Sized {
    /// The name of the type in help texts.
    const KIND: &'static str;

    /// Parses the text of a variable or a flag.
    fn parse(text: &str) -> Result<Self, String>;

    /// Deserializes a value.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;

    /// Serializes a value so that `read` returns the same value.
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;
}

/// A [`Value`] that implements `Deserialize`.
pub(super) struct Read<T>(pub(super) T);

impl<'de, T: Value> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

/// A [`Value`] that implements `Serialize`.
pub(super) struct Written<'a, T>(pub(super) &'a T);

impl<T: Value> Serialize for Written<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(to)
    }
}

impl Value for Duration {
    const KIND: &'static str = "TIME";

    fn parse(text: &str) -> Result<Self, String> {
        span::parse(text).map_err(|error| error.to_string())
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
        text.parse().map_err(|_| format!("{text:?} is not a number: write it as a fraction, like 0.8 or 0.01"))
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
        let number: i64 = text.parse().map_err(|_| format!("{text:?} is not a whole number: write it like 10"))?;
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
            _ => Err(format!("{text:?} is neither true nor false: write one of them")),
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
///
/// Implement it for an enum of your store, so that its words and errors are the same in files, URLs and variables.
pub trait Word: Copy + PartialEq + 'static {
    /// All words, each with the value that it stands for.
    const WORDS: &'static [(&'static str, Self)];
}

/// Serializes and deserializes a [`Word`] with serde: `#[serde(with = "tenure_core::word")]`.
pub mod word {
    use serde::{Deserializer, Serializer};

    use super::{Value, Word};

    /// Serializes the word that stands for the value.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<T: Word, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.write(to)
    }

    /// Deserializes a word into the value that it stands for.
    ///
    /// # Errors
    /// If the text is not one of the words; the error lists them.
    pub fn deserialize<'de, T: Word, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(from)
    }
}

impl<T: Word> Value for T {
    const KIND: &'static str = "WORD";

    fn parse(text: &str) -> Result<Self, String> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        found.map(|(_, value)| *value).ok_or_else(|| match did_you_mean(text, &words).as_slice() {
            [] => format!("{text:?} is not one of {}", words.join(", ")),
            near => format!("{text:?} is not one of {}: did you mean {}?", words.join(", "), near.join(" or ")),
        })
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let found = T::WORDS.iter().find(|(_, value)| value == self);
        to.serialize_str(found.map_or("", |(word, _)| *word))
    }
}

/// Defines [`ElectionOptions`](crate::ElectionOptions) and all code that lists its options from one table.
///
/// `metadata` is not in the table, because it is a map to which every layer adds.
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
            /// Pairs of text that others see beside this candidate, and beside the leader if it leads. Each layer adds
            /// to the pairs of the layer below.
            pub metadata: BTreeMap<String, String>,
        }

        impl ElectionOptions {
            /// All options except `metadata`, group by group, for help texts.
            pub const TABLE: &'static [OptionInfo] = &[$($(OptionInfo {
                name: stringify!($name),
                group: $group,
                kind: <$type as Value>::KIND,
                default: $default,
                doc: concat!($($doc),+),
            }),+),+];

            /// Returns these options, overridden by those that `over` sets.
            ///
            /// ```
            /// # use tenure_core::ElectionOptions;
            /// let mut file = ElectionOptions::default();
            /// (file.priority, file.preempt) = (Some(1), Some(true));
            /// let mut flags = ElectionOptions::default();
            /// flags.priority = Some(2);
            /// let both = file.overlaid(flags);
            /// assert_eq!((both.priority, both.preempt), (Some(2), Some(true)));
            /// ```
            #[must_use]
            pub fn overlaid(mut self, over: Self) -> Self {
                $($(self.$name = over.$name.or(self.$name);)+)+
                self.metadata.extend(over.metadata);
                self
            }

            /// Sets the option with this name to the value of a text, as variables and flags do. The text of `metadata`
            /// has the form `key=value,key=value`, and adds to the pairs.
            ///
            /// ```
            /// # use tenure_core::ElectionOptions;
            /// let mut options = ElectionOptions::default();
            /// options.set("lease", "30s")?;
            /// # Ok::<(), tenure_core::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`Error::Option`], in one line, if there is no such option or the text is not a valid value.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), Error> {
                let value = match name {
                    $($(stringify!($name) => Value::parse(text).map(|value| self.$name = Some(value)),)+)+
                    "metadata" => pairs(text).map(|pairs| self.metadata.extend(pairs)),
                    _ => return Err(Error::Option(names::unknown("", name, FIELDS))),
                };
                value.map_err(|problem| Error::Option(format!("{name}: {problem}")))?;
                self.check_ranges()
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
