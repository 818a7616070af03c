//! Archives, Debian packages, the command itself, and the umbrella's component.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Bench, Missing, Verdict, check, cmake, command, ended, listing, output};
use crate::install::layout::{self, Component, Umbrella};
use crate::install::{manifest, package};
use crate::process;

/// The prefix of Debian packages.
const PREFIX: &str = "/opt/rocm";

pub(super) fn by_command(bench: &Bench, directory: &Path) -> Verdict {
    let destination = directory.join("destination");
    let call = |words: &[&str]| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["install", "--prefix", "/opt/x"]).args(words).env("DESTDIR", &destination);
        ended(command.arg("--from").arg(&bench.libraries))
    };
    let root = destination.join("opt/x");
    let (status, said) = call(&["--component", "plugin", "--component", "python"])?;
    check(status == Some(0), || said)?;
    let files = listing(&root)?;
    let has = |end: &str| files.iter().any(|(path, _)| path.to_string_lossy().ends_with(end));
    check(has("lib/hipdnn_plugins/engines/libhipdnn_rs_plugin.so") && has(".whl"), || format!("{files:?}"))?;
    check(!has("libhipdnn_backend.so") && !has("hipdnn_backend.h"), || format!("{files:?}"))?;
    // Again is no conflict, and changes nothing.
    let (status, said) = call(&["--component", "plugin"])?;
    check(status == Some(0) && listing(&root)? == files, || said)?;
    let (status, said) = call(&["--component", "plugin", "--uninstall"])?;
    check(status == Some(0) && !root.join("lib").exists() && root.join("share").exists(), || said)?;
    let (status, said) = call(&["--uninstall"])?;
    check(status == Some(0) && layout::files_below(&root)?.is_empty(), || said)?;
    let (status, said) = call(&["--uninstall"])?;
    check(status == Some(1) && said.contains("expected manifests below"), || said)?;
    Ok(Ok(()))
}

pub(super) fn relocatable(bench: &Bench, directory: &Path) -> Verdict {
    bench.install(directory, &Component::ALL)?;
    if let Err(problem) = process::capture(Command::new("readelf").arg("--version")) {
        return Ok(Err(Missing(problem.to_string())));
    }
    let binaries: Vec<PathBuf> = layout::files_below(directory)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "so") || path.ends_with("bin/hipdnn-rs"))
        .collect();
    check(binaries.len() == 8, || format!("expected 8 libraries and programs, got {binaries:?}"))?;
    for path in &binaries {
        let dynamic = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(path))?;
        let named = dynamic.lines().find(|line| line.contains("PATH)") && !line.contains("[$ORIGIN"));
        check(named.is_none(), || format!("{}: {named:?}", path.display()))?;
    }
    let scripts = layout::files_below(&directory.join("lib/cmake"))?
        .into_iter()
        .chain(layout::files_below(&directory.join("lib/pkgconfig"))?);
    for path in scripts {
        let text = fs::read_to_string(&path)?;
        let prefix = directory.display().to_string();
        check(!text.contains(&prefix) && !text.contains("@VERSION@"), || format!("{} names {prefix}", path.display()))?;
    }
    Ok(Ok(()))
}

pub(super) fn archives(bench: &Bench, directory: &Path) -> Verdict {
    let out = directory.join("packages");
    let made =
        package::build(&bench.libraries, Path::new(PREFIX), &out, &Component::STANDARD, package::first_author())?;
    output(Command::new("sha256sum").args(["--check", "--strict", package::SUMS]).current_dir(&out))?;
    let prefix = directory.join("unpacked");
    fs::create_dir_all(&prefix)?;
    for packages in &made {
        output(Command::new("tar").arg("-xzf").arg(&packages.archive).arg("-C").arg(&prefix))?;
    }
    let installed = directory.join("installed");
    bench.install(&installed, &Component::STANDARD)?;
    check(listing(&prefix)? == listing(&installed)?, || "archives and installation differ".to_owned())?;
    let again = directory.join("again");
    package::build(&bench.libraries, Path::new(PREFIX), &again, &[Component::Plugin], package::first_author())?;
    let first = listing(&out)?;
    let second = listing(&again)?;
    let same = |entry: &(PathBuf, String)| first.contains(entry) || entry.0 == Path::new(package::SUMS);
    check(second.len() > 1 && second.iter().all(same), || "a second build of a package has other bytes".to_owned())?;
    let option = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    let (clients, _) = match cmake::built_clients(bench, directory, &[option])? {
        Ok(built) => built,
        Err(missing) => return Ok(Err(missing)),
    };
    output(&mut command(&clients.join("list_engines")))?;
    for component in Component::STANDARD {
        check(manifest::uninstall(&prefix, component)?.is_empty(), || format!("{component:?} was changed"))?;
    }
    check(layout::files_below(&prefix)?.is_empty(), || "files are left".to_owned())?;
    Ok(Ok(()))
}

pub(super) fn debian(bench: &Bench, directory: &Path) -> Verdict {
    if let Err(problem) = process::capture(Command::new("dpkg-deb").arg("--version")) {
        return Ok(Err(Missing(problem.to_string())));
    }
    let made = package::build(
        &bench.libraries,
        Path::new(PREFIX),
        &directory.join("packages"),
        &Component::STANDARD,
        package::first_author(),
    )?;
    let mut files = Vec::new();
    for packages in made {
        files.push(packages.debian?);
    }
    let (unpacked, installed) = (directory.join("unpacked"), directory.join("installed"));
    for file in &files {
        output(Command::new("dpkg-deb").arg("-x").arg(file).arg(&unpacked))?;
        let fields = output(Command::new("dpkg-deb").arg("--field").arg(file))?;
        for field in [
            "Package: hipdnn-rs-",
            "Version: ",
            "Architecture: ",
            "Depends: libc6 (>= 2.28)",
            "Description: ",
            &format!("Maintainer: {}", package::first_author()),
        ] {
            check(fields.lines().any(|line| line.starts_with(field)), || format!("{}: {fields}", file.display()))?;
        }
    }
    bench.install(&installed, &Component::STANDARD)?;
    let below = unpacked.join("opt/rocm");
    check(listing(&below)? == listing(&installed)?, || "packages and installation differ".to_owned())?;
    check(unpacked.join("usr/share/doc/hipdnn-rs-plugin/copyright").is_file(), || "no copyright file".to_owned())?;
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        return Ok(Err(Missing("installing by dpkg needs root; the packages' contents are right".to_owned())));
    }
    // A system of its own, in which nothing is installed.
    let root = directory.join("root");
    fs::create_dir_all(root.join("var/lib/dpkg/updates"))?;
    fs::create_dir_all(root.join("var/lib/dpkg/info"))?;
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    fs::write(root.join("var/lib/dpkg/available"), "")?;
    let dpkg = || {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display())).args(["--force-depends", "--force-script-chrootless"]);
        command
    };
    output(dpkg().arg("--install").args(&files))?;
    check(listing(&root.join("opt/rocm"))? == listing(&installed)?, || "dpkg installed other files".to_owned())?;
    let names = Component::STANDARD.map(|component| format!("hipdnn-rs-{}", component.name()));
    output(dpkg().arg("--purge").args(names))?;
    check(!root.join("opt").exists() && !root.join("usr").exists(), || "dpkg left files".to_owned())?;
    Ok(Ok(()))
}

pub(super) fn notices(bench: &Bench, directory: &Path) -> Verdict {
    bench.install(directory, &Component::ALL)?;
    for component in Component::ALL {
        let documents = directory.join("share/doc").join(component.package_name());
        for name in ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt"] {
            check(fs::metadata(documents.join(name))?.len() > 500, || format!("{component:?}: {name} is short"))?;
        }
        let bill: serde_json::Value = serde_json::from_slice(&fs::read(documents.join("sbom.cdx.json"))?)?;
        let parts = bill["components"].as_array().map_or(0, Vec::len);
        let name = bill["metadata"]["component"]["name"].as_str().unwrap_or_default();
        check(bill["bomFormat"] == "CycloneDX" && name == component.package_name() && parts > 5, || format!("{bill}"))?;
    }
    Ok(Ok(()))
}

/// What AMD's umbrella does on Linux: `dlopen("libhip-backend.so", RTLD_NOW | RTLD_LOCAL)` and two functions by name.
const UMBRELLA: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void* library = dlopen("libhip-backend.so", RTLD_NOW | RTLD_LOCAL);
    if (!library || !dlsym(library, "CreateEpFactories") || !dlsym(library, "ReleaseEpFactory")) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return dlclose(library);
}
"#;

pub(super) fn umbrella(bench: &Bench, directory: &Path) -> Verdict {
    let prefix = directory.join("prefix");
    bench.install(&prefix, &[Component::Umbrella])?;
    let names: Vec<String> =
        listing(&prefix.join("bin"))?.into_iter().map(|(path, _)| path.display().to_string()).collect();
    check(names == ["libhip-backend.so", "libhipdnn_backend.so", "libhipdnn_rs_plugin.so"], || format!("{names:?}"))?;
    let (source, program) = (directory.join("umbrella.c"), prefix.join("bin/umbrella"));
    fs::write(&source, UMBRELLA)?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    // The umbrella's folder is on the search path by its own rpath, or by the user's setting.
    output(Command::new(&compiler).arg(&source).args(["-Wl,-rpath,$ORIGIN", "-ldl", "-o"]).arg(&program))?;
    output(&mut command(&program))?;
    // Where the shim of AMD's has that name, it stays.
    let shim = directory.join("shim");
    fs::create_dir_all(shim.join("bin"))?;
    fs::write(shim.join("bin/libhip-backend.so"), "AMD's shim")?;
    let refused = bench.install(&shim, &[Component::Umbrella]);
    let text = refused.err().map(|problem| problem.to_string()).unwrap_or_default();
    check(text.contains("got bin/libhip-backend.so; nothing was written"), || format!("got {text:?}"))?;
    check(listing(&shim)?.len() == 1, || "something was written".to_owned())?;
    // Behind it the provider has the name that it opens.
    let behind = Umbrella { library: layout::UMBRELLA_LIBRARIES[1], ..Umbrella::default() };
    crate::install::install(&shim, &[Component::Umbrella], &bench.libraries, &behind)?;
    let source = source.with_file_name("shim.c");
    fs::write(&source, UMBRELLA.replace(layout::UMBRELLA_LIBRARIES[0], behind.library))?;
    let program = shim.join("bin/shim");
    output(Command::new(compiler).arg(&source).args(["-Wl,-rpath,$ORIGIN", "-ldl", "-o"]).arg(&program))?;
    output(&mut command(&program))?;
    check(fs::read(shim.join("bin/libhip-backend.so"))? == b"AMD's shim", || "the shim was replaced".to_owned())?;
    Ok(Ok(()))
}
