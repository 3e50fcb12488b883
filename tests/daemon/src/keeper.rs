//! The process that ends what a test program leaves behind, however the test program ends.
//!
//! The keeper reads what is to end: numbers of processes, and negative ones of groups. The pipe to
//! the keeper closes with the test program.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    process::{ChildStdin, Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError},
};

static KEEPER: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| {
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPS]).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    Mutex::new(keeper.spawn().unwrap().stdin.take().unwrap())
});

const KEEPS: &str = r#"
while read -r what whom; do
    case $what,$kept in
        keep,*) kept="$kept $whom " ;;
        forget,*" $whom "*) kept="${kept%%" $whom "*}${kept#*" $whom "}" ;;
    esac
done
[ -z "$kept" ] || kill -s KILL -- $kept
"#;

/// Has the keeper end this process, or group, after the test program.
pub(crate) fn keep(whom: i64) {
    write(format_args!("keep {whom}\n"));
}

/// From here on the number may be somebody else's.
pub(crate) fn forget(whom: i64) {
    write(format_args!("forget {whom}\n"));
}

fn write(line: std::fmt::Arguments) {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = keeper.write_all(line.to_string().as_bytes());
}
