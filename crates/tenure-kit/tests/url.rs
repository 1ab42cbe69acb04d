//! All stores parse URLs, options and variables alike, and no error shows a secret.

use std::path::PathBuf;
use std::time::Duration;

use tenure_kit::options::{UrlOptions, Variables, refuse};
use tenure_kit::url::{Secret, Url, check_login, decoded, encoded, with_port};

fn hosts(url: &Url<'_>) -> Result<Vec<String>, tenure_core::ConfigError> {
    let mut hosts = Vec::new();
    url.hosts(7, &mut hosts).map(|()| hosts)
}

const SCHEMES: &[&str] = &["shelf", "shelfs", "shelf+unix"];

#[test]
fn a_url_is_parsed_into_its_parts() {
    let url = Url::parse("shelf://jobs:p%40ss@a,b:1,[::1]/my/leaders?x=1", SCHEMES).unwrap();
    assert_eq!((url.scheme, url.path()), ("shelf", "my/leaders"));
    assert_eq!((url.user().unwrap().as_deref(), url.password().unwrap()), (Some("jobs"), Some("p@ss".into())));
    assert_eq!(hosts(&url).unwrap(), ["a:7", "b:1", "[::1]:7"]);
    for short in ["shelf:", "shelf://", "shelf:///", "shelf:?x", "shelf://?x", "shelf:///?x"] {
        let url = Url::parse(short, SCHEMES).unwrap();
        assert!(hosts(&url).unwrap().is_empty() && url.path().is_empty(), "{short}");
        assert_eq!((url.user().unwrap(), url.password().unwrap()), (None, None), "{short}");
    }
    let socket = Url::parse("shelf+unix://:pw@/run/shelf.sock", SCHEMES).unwrap();
    assert_eq!((socket.place, socket.password().unwrap()), ("/run/shelf.sock", Some("pw".into())));
    let odd = Url::parse("shelf://u:p@w@h", SCHEMES).unwrap();
    assert_eq!((odd.password().unwrap(), hosts(&odd).unwrap()), (Some("p@w".into()), vec!["h:7".to_owned()]));
}

#[test]
fn errors_about_a_url_show_no_part_of_it() {
    let parse = |url| {
        let url = Url::parse(url, SCHEMES)?;
        url.user()?;
        url.password()?;
        hosts(&url)?;
        url.options()?.finish()
    };
    for (url, message) in [
        ("hunter2", "begins with one of shelf://, shelfs://, shelf+unix://"),
        ("http://u:hunter2@host", "begins with one of"),
        ("shelfs:hunter2", "begins with shelfs://"),
        ("shelf://u:hunter2%@host", "%25"),
        ("shelf://hunter2%zz@host", "%25"),
        ("shelf://u:hunter2@host:port", "host:port"),
        ("shelf://u:hunter2@a,,b", "host:port"),
        ("shelf://u:x?hunter2@host", "%3F"),
        ("shelf://u:x?hunter2", "host:port"),
        ("shelf://host?x=%hunter2", "%25"),
        ("shelf://host?colour=hunter2", "unknown option \"colour\""),
    ] {
        let error = parse(url).unwrap_err().to_string();
        assert!(error.contains(message) && !error.contains("hunter2") && !error.contains('\n'), "{url}: {error}");
        let shown = format!("{:?}", Url::parse(url, SCHEMES));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(
        Url::parse_without_login("x:y", &["x"])
            .unwrap_err()
            .to_string()
            .ends_with("begins with x://; write both slashes")
    );
    assert!(Url::parse_without_login("shelf://a?file=/etc/a@b", SCHEMES).is_ok());
}

#[test]
fn options_are_taken_out_by_name_and_the_remaining_ones_are_unknown() {
    let query = "name=a%20b&file=/x%3F&secret=hunter2&flag&count=3&big=-7&wait=1m30s&mode=fast&check=a&check=b&its=own";
    let mut options = UrlOptions::of_query(query).unwrap();
    let (mut name, mut file, mut secret) = (String::new(), None::<PathBuf>, None::<Secret>);
    let (mut flag, mut count, mut big, mut wait) = (false, 0_u32, None::<i64>, Duration::ZERO);
    let (mut mode, mut absent) = (1, "as it was".to_owned());
    options.take("name", &mut name).unwrap().take("file", &mut file).unwrap().take("secret", &mut secret).unwrap();
    options.take("flag", &mut flag).unwrap().take("count", &mut count).unwrap().take("big", &mut big).unwrap();
    options.take("wait", &mut wait).unwrap().take("absent", &mut absent).unwrap();
    options.choose("mode", &mut mode, &[("slow", 1), ("fast", 2)]).unwrap();
    assert_eq!(options.take_all("check"), ["a", "b"]);
    assert_eq!((name.as_str(), file, secret), ("a b", Some("/x?".into()), Some("hunter2".into())));
    assert_eq!((flag, count, big, wait.as_secs()), (true, 3, Some(-7), 90));
    assert_eq!((mode, absent.as_str()), (2, "as it was"));
    assert_eq!(options.rest(), "its=own");
}

#[test]
fn errors_about_an_option_say_what_its_value_must_be() {
    fn take<T: tenure_kit::options::Value>(query: &str, mut into: T) -> String {
        UrlOptions::of_query(query).unwrap().take("x", &mut into).unwrap_err().to_string()
    }
    assert_eq!(take("x=hunter2", false), "x must be true or false");
    assert_eq!(take("x=-1", 1_u32), "x must be a whole number, 0 or more");
    assert_eq!(take("x=1.5", 1_i64), "x must be a whole number of at most 64 bits");
    assert_eq!(take("x=15", Some(Duration::ZERO)), "x must be a duration, like 2s or 500ms");
    assert_eq!(take("x=a&x=hunter2", String::new()), "option x is given twice; give it once");
    let mut options = UrlOptions::of_query("mode=hunter2&y=1").unwrap();
    let wrong = options.choose("mode", &mut 1, &[("slow", 1), ("fast", 2), ("faster", 3)]);
    assert_eq!(wrong.unwrap_err(), "mode must be slow, fast or faster".into());
    options.take("x", &mut 1_u32).unwrap();
    assert_eq!(options.finish().unwrap_err(), "unknown option \"y\" in the URL; did you mean x?".into());
}

#[test]
fn of_several_problems_the_first_is_reported() {
    assert_eq!(refuse(&[(false, "one"), (true, "two"), (true, "three")]), Err("two".into()));
    assert_eq!(refuse(&[(false, "one")]), Ok(()));
}

#[test]
fn variables_are_parsed_like_options_and_empty_ones_count_as_unset() {
    let lookup = |name: &str| match name {
        "GIVEN" => Some("FALSE".to_owned()),
        "EMPTY" => Some(String::new()),
        "WRONG" => Some("hunter2".to_owned()),
        _ => None,
    };
    let variables = Variables(&lookup);
    let (mut given, mut empty, mut absent) = (true, false, 7_u32);
    variables.take("GIVEN", &mut given).unwrap().take("EMPTY", &mut empty).unwrap().take("NONE", &mut absent).unwrap();
    assert_eq!((given, empty, absent), (false, false, 7));
    assert_eq!(variables.take("WRONG", &mut given).err().unwrap(), "WRONG must be true or false".into());
}

#[test]
fn escapes_are_reversible_and_invalid_ones_are_refused_without_showing_them() {
    assert_eq!(decoded("p%40ss%2f%C3%A9"), Ok("p@ss/é".to_owned()));
    assert_eq!(encoded("a-b/c%é", "-"), "a-b%2Fc%25%C3%A9");
    assert_eq!(decoded(&encoded("a-b/c%é", "/")), Ok("a-b/c%é".to_owned()));
    for wrong in ["hunter2%", "hunter2%4", "hunter2%zz", "hunter2%ff"] {
        let error = decoded(wrong).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_password_with_unescaped_separators_is_refused_without_showing_it() {
    for url in ["redis://u:pw@h/0?ca=/x", "redis://u:p%3Fw@h", "redis:", "redis+unix:///s", "redis://u:p@w@h"] {
        assert_eq!(check_login(url), Ok(()), "{url}");
    }
    for url in ["redis://u:hunter2?x&y=z@h", "redis://u:hunter2/x@h/0", "redis://u:hunter2#x@h", "redis://u:p@w?x@h"] {
        let error = check_login(url).unwrap_err().to_string();
        assert!(error.contains("%3F") && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn hosts_get_a_port_if_they_have_none() {
    for (host, whole) in [("a", "a:7"), ("a.b-c_d:1", "a.b-c_d:1"), ("[::1]", "[::1]:7"), ("[::1]:1", "[::1]:1")] {
        assert_eq!(with_port(host, 7).as_deref(), Ok(whole));
    }
    for wrong in ["", ":1", "a:", "a:x", "a:70000", "a b", "a/b", "u@a"] {
        assert!(with_port(wrong, 7).is_err(), "{wrong}");
    }
}

#[test]
fn a_secret_is_not_printed() {
    assert_eq!(format!("{:?}", Secret::from("hunter2")), "***");
}
