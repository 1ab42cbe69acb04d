//! What went wrong, in words that say what to do, and whether it happened.

use std::path::Path;

use rusqlite::{Error, ErrorCode};
use tenure_core::StoreError;

/// Whether a row holds a value that Tenure would not have written. The transaction itself goes on.
pub(crate) fn is_about_a_value(error: &Error) -> bool {
    use Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(error, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..))
}

/// A row of this seat holds something else than Tenure has written.
pub(crate) fn unreadable(path: &Path, seat: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::denied(format!(
        "seat {seat:?} in {} holds something that Tenure did not write: restore it, or remove it with tenure forget",
        path.display()
    ))
    .because(error)
}

/// Classifies an error of SQLite. A transaction that fails is rolled back as a whole, so nothing has
/// happened unless the disk itself cannot say.
pub(crate) fn of_sqlite(path: &Path, error: Error) -> StoreError {
    let shown = path.display();
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::refused(format!("{shown} is busy: another process is writing"))
        }
        Some(ErrorCode::DiskFull) => StoreError::refused(format!("no space left for {shown}: free some")),
        Some(ErrorCode::NotADatabase) => foreign(path),
        Some(ErrorCode::DatabaseCorrupt) => StoreError::denied(format!(
            "{shown} is damaged: move it away together with the files beside it, and start again"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            StoreError::denied(format!("{shown} may not be written: give this user the right to, or name another file"))
        }
        Some(ErrorCode::CannotOpen) => StoreError::denied(format!(
            "{shown} cannot be opened: see that its folder exists and this user may write in it"
        )),
        Some(ErrorCode::SystemIoFailure) => StoreError::unknown(format!("the disk failed under {shown}")),
        _ => StoreError::unknown(format!("SQLite failed on {shown}")),
    }
    .because(error)
}

/// The file is somebody else's.
pub(crate) fn foreign(path: &Path) -> StoreError {
    StoreError::denied(format!("{} is not a database of Tenure: name another file", path.display()))
}

/// Classifies an error of the file system.
pub(crate) fn of_file(path: &Path, error: std::io::Error) -> StoreError {
    use std::io::ErrorKind;
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => StoreError::denied(format!("{shown} does not exist: create its folder")),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::denied(format!("{shown} may not be written: give this user the right to, or name another file"))
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            StoreError::refused(format!("no space left for {shown}: free some"))
        }
        _ => StoreError::refused(format!("{shown} cannot be used")),
    }
    .because(error)
}
