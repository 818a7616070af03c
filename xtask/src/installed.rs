//! The installed layout as a C user meets it: headers, pkg-config file, libraries, and the plugin found without a setting.

use std::path::Path;
use std::process::Command;

use crate::summary::{Outcome, Summary};
use crate::test::remove_settings;
use crate::{Result, process, workspace};

/// Compiles and runs a C program against what `dist` laid out below `prefix`.
pub(crate) fn test(prefix: &Path, summary: &mut Summary) -> Result<()> {
    let scratch = workspace::target().join("installed");
    std::fs::create_dir_all(&scratch)?;
    let program = scratch.join("smoke_backend");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(&compiler);
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-o"]).arg(&program);
    compile.arg(workspace::root().join("integration_tests/c/smoke_backend.c"));
    compile.arg("-I").arg(prefix.join("include")).args(["-ldl", "-lm"]);
    process::run(&mut compile, "compiling against the installed headers")?;

    let mut run = Command::new(&program);
    remove_settings(&mut run);
    // Without HIPDNN_PLUGIN_DIR the backend looks beside itself.
    run.arg(prefix.join("lib/libhipdnn_backend.so")).arg("HIPDNN_RS_CPU_ENGINE");
    let output = process::capture(run.env("HIPDNN_RS_CPU_ENGINE", "on"))?;
    summary.record(
        "installed: a C program finds the plugin beside the backend",
        if output.status.success() { Outcome::Passed } else { Outcome::Failed(process::tail(&output.stderr, 5)) },
    );

    let name = "installed: a C program links the backend by pkg-config";
    summary.record(
        name,
        match flags(prefix) {
            Ok(flags) => linked(prefix, &scratch, &compiler, &flags)?,
            Err(reason) => Outcome::Skipped(reason),
        },
    );
    Ok(())
}

/// Flags of the installed file, from pkg-config; the error is the reason why it can't be asked.
fn flags(prefix: &Path) -> Result<Vec<String>, String> {
    let mut command = Command::new("pkg-config");
    command.args(["--cflags", "--libs", "hipdnn_rs"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let output = process::capture(&mut command).map_err(|problem| problem.to_string())?;
    if !output.status.success() {
        return Err(process::tail(&output.stderr, 2));
    }
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
}

fn linked(prefix: &Path, scratch: &Path, compiler: &std::ffi::OsStr, flags: &[String]) -> Result<Outcome> {
    let program = scratch.join("link_backend");
    let mut compile = Command::new(compiler);
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    compile.arg(workspace::root().join("integration_tests/c/link_backend.c")).args(flags);
    process::run(&mut compile, "linking with pkg-config's flags")?;
    let mut run = Command::new(&program);
    remove_settings(&mut run);
    run.env("LD_LIBRARY_PATH", prefix.join("lib"));
    let output = process::capture(&mut run)?;
    Ok(if output.status.success() { Outcome::Passed } else { Outcome::Failed(process::tail(&output.stderr, 5)) })
}
