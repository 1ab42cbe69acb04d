//! Error messages that say what to do, and whether the call took effect.

use std::path::Path;

use rusqlite::{Error, ErrorCode};
use tenure_core::StoreError;

/// Returns whether a row holds a value that Tenure would not have written. The transaction can continue.
pub(crate) fn is_about_a_value(error: &Error) -> bool {
    use Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(error, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..))
}

/// Creates the error for a seat whose row Tenure did not write.
pub(crate) fn unreadable(path: &Path, seat: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::denied(format!(
        "seat {seat:?} in {} has content that Tenure did not write; restore it, or remove it with \"tenure forget\"",
        path.display()
    ))
    .because(error)
}

/// Classifies an error of SQLite. A failed transaction is rolled back as a whole, so nothing has taken effect
/// unless the disk itself reports an unknown state.
pub(crate) fn of_sqlite(path: &Path, error: Error) -> StoreError {
    let shown = path.display();
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::refused(format!("{shown} is locked: another process is writing to it"))
        }
        Some(ErrorCode::DiskFull) => {
            StoreError::refused(format!("no space left on the disk of {shown}; free some space"))
        }
        Some(ErrorCode::NotADatabase) => foreign(path),
        Some(ErrorCode::DatabaseCorrupt) => StoreError::denied(format!(
            "{shown} is damaged; move it away together with its -wal and -shm files, and restart the candidates"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            StoreError::denied(format!(
                "cannot write {shown}: permission denied; grant this user write access or use another file"
            ))
        }
        Some(ErrorCode::CannotOpen) => StoreError::denied(format!(
            "cannot open {shown}; check that its directory exists and that this user can write to it"
        )),
        Some(ErrorCode::SystemIoFailure) => {
            StoreError::unknown(format!("input/output error on {shown}; check the disk"))
        }
        _ => StoreError::unknown(format!("SQLite failed on {shown}")),
    }
    .because(error)
}

/// Classifies an error of SQLite on a database that is only read.
pub(crate) fn of_reading(path: &Path, error: Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            cannot_read(path).because(error)
        }
        _ => of_sqlite(path, error),
    }
}

/// Creates the error for a file that this user may not read.
pub(crate) fn cannot_read(path: &Path) -> StoreError {
    let shown = path.display();
    StoreError::denied(format!(
        "cannot read {shown}; grant this user read access to {shown}, {shown}-wal and {shown}-shm"
    ))
}

/// Creates the error for a write to a store that is read only.
pub(crate) fn read_only(path: &Path) -> StoreError {
    StoreError::denied(format!("{} was opened to be read only; open it with SqliteStore::new to write", path.display()))
}

/// Creates the error for a file that belongs to another program.
pub(crate) fn foreign(path: &Path) -> StoreError {
    StoreError::denied(format!("{} is not a database of Tenure; use another file", path.display()))
}

/// Classifies an error of the file system.
pub(crate) fn of_file(path: &Path, error: std::io::Error) -> StoreError {
    use std::io::ErrorKind;
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => StoreError::denied(format!("{shown} does not exist; create its directory")),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreError::denied(format!(
            "cannot write {shown}: permission denied; grant this user write access or use another file"
        )),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            StoreError::refused(format!("no space left on the disk of {shown}; free some space"))
        }
        _ => StoreError::refused(format!("cannot access {shown}")),
    }
    .because(error)
}
