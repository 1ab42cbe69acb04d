//! Masks secrets in URLs, so that URLs can be printed.

/// Masks the secrets of a URL: the password, a token before the host, and the values of parameters whose names suggest
/// a secret. If it is unclear where the password ends, only the scheme is shown.
pub(crate) fn mask(url: &str) -> String {
    if let (Some((scheme, _)), Err(_)) = (url.split_once("://"), tenure_kit::url::check_login(url)) {
        return format!("{scheme}://***");
    }
    if !url.contains("://") && url.contains(['=', ';']) {
        return mask_connection_string(url);
    }
    let (front, query) = url.split_once('?').map_or((url, None), |(front, query)| (front, Some(query)));
    let mut masked = mask_password(front);
    if let Some(query) = query {
        let parameters: Vec<String> = query.split('&').map(mask_parameter).collect();
        masked = format!("{masked}?{}", parameters.join("&"));
    }
    masked
}

fn mask_password(front: &str) -> String {
    let Some((scheme, rest)) = front.split_once("://") else { return front.to_owned() };
    // The last @: a password can contain one that was not escaped by mistake.
    let Some((user, host)) = rest.rsplit_once('@') else { return front.to_owned() };
    let user = match user.split_once(':') {
        Some((user, _)) => format!("{user}:***"),
        // A user of a database can log in without a password. For other stores a single word is a token, or a password
        // without its colon.
        None if ["postgres", "mysql", "mariadb", "sqlserver", "mssql"]
            .iter()
            .any(|store| scheme.starts_with(store)) =>
        {
            user.to_owned()
        }
        None => "***".to_owned(),
    };
    format!("{scheme}://{user}@{host}")
}

/// Masks a connection string (`Server=…;Password=…`) from its first secret on: a password can contain semicolons.
fn mask_connection_string(text: &str) -> String {
    let mut shown = Vec::new();
    for part in text.split(';') {
        let masked = mask_parameter(part);
        let is_secret = masked != part;
        shown.push(masked);
        if is_secret {
            break;
        }
    }
    shown.join(";")
}

fn mask_parameter(parameter: &str) -> String {
    const SECRET: [&str; 9] =
        ["pass", "pwd", "secret", "token", "key", "sig", "credential", "auth", "connection_string"];
    match parameter.split_once('=') {
        Some((name, _)) if SECRET.iter().any(|word| name.to_ascii_lowercase().contains(word)) => {
            format!("{name}=***")
        }
        _ => parameter.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked() {
        for (url, shown) in [
            ("redis://user:hunter2@host:6379/0", "redis://user:***@host:6379/0"),
            ("redis://:hunter2@host", "redis://:***@host"),
            (
                "postgres://u:hunter2@h/db?sslmode=require&password=hunter2",
                "postgres://u:***@h/db?sslmode=require&password=***",
            ),
            ("postgres://u:hunter2@hunter2@h/db", "postgres://u:***@h/db"),
            ("postgres://u:hunter2/hunter2@h/db", "postgres://***"),
            ("redis://u:hunter2?hunter2&hunter2@h/0", "redis://***"),
            ("redis://u:x@hunter2?hunter2@h/0", "redis://***"),
            ("consul://hunter2@h:8500", "consul://***@h:8500"),
            ("redis://hunter2@h", "redis://***@h"),
            (
                "azblob://account/container?SharedAccessSignature=hunter2",
                "azblob://account/container?SharedAccessSignature=***",
            ),
            (
                "azblob:///jobs?connection_string=AccountName%3Da;AccountKey%3Dhunter2&notes",
                "azblob:///jobs?connection_string=***&notes",
            ),
            (
                "azblob://a/jobs?account_key=hunter2&sas_token=sig%3Dhunter2&client_secret=hunter2",
                "azblob://a/jobs?account_key=***&sas_token=***&client_secret=***",
            ),
            ("AccountName=a;AccountKey=hunter2==;BlobEndpoint=b", "AccountName=a;AccountKey=***"),
            ("sqlserver://u:hunter2@h/db", "sqlserver://u:***@h/db"),
            ("Server=h,1433;Database=d;Password='hun;hunter2';User Id=a", "Server=h,1433;Database=d;Password=***"),
            ("pwd={hunter2;hunter2};server=h", "pwd=***"),
        ] {
            assert_eq!(mask(url), shown);
        }
    }

    #[test]
    fn urls_without_secrets_are_shown_unchanged() {
        for url in [
            "memory:",
            "sqlite:/var/lib/jobs.db",
            "redis://host:6379/0",
            "postgres://user@host",
            "sqlite:a.db?mode=ro",
            "Server=h;Database=d",
        ] {
            assert_eq!(mask(url), url);
        }
    }
}
