//! Debian packages of the emulated GPU: chosen and fetched with apt, and unpacked, without root.
//!
//! apt runs with directories of its own, so nothing of the system changes, and with the system's mirror,
//! proxy and keys. Its solver finds the packages; those that MIOpen's package asks for but its library can do
//! without (rocBLAS with its 300 MB of kernels, test data, C headers of the compiler) are left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::{Deserialize, Serialize};

use super::{Installation, Lock, Prepared, Unavailable, cache, is_installed};
use crate::{Result, process};

/// Names a mirror where apt has none of Debian's.
const MIRROR: &str = "HIPDNN_EMULATED_GPU_MIRROR";

const LIBRARY: &str = "libmiopen1";

/// Packages taken for their headers alone, without their dependencies.
const DEVELOPMENT: [&str; 2] = ["libamdhip64-dev", "libmiopen-dev"];

/// Beginnings of names that are told to apt as installed, so that it doesn't follow them.
const REPLACED: [&str; 4] = [RUNTIME, "librocblas", "librocrand", "libhsa-runtime"];

/// Our own library takes its place.
const RUNTIME: &str = "libamdhip64-";

/// The disassembler that the emulator decodes with, and the back end of the kernel compiler.
const DISASSEMBLER: &str = "libamd-comgr";

/// The kernel compiler's headers and library: the same name, with and without this.
const BUILTINS: &str = "libhiprtc-builtins";

/// Beginnings of names that are resolved but not fetched.
const LEFT_OUT: [&str; 4] = ["libclang-common-", "libmiopen-tests-data", "gcc-", "libc-gconv-modules"];

/// Packages that come together from one release of ROCm.
const ROCM: &str = "libmiopen* libamd-comgr* libhip* libroctx* libamdhip64*";

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Options for the choice of packages.
#[derive(clap::Args, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// The release in sid, even if experimental has a newer one
    #[arg(long)]
    sid: bool,
    /// Look for newer packages though some are there
    #[arg(long)]
    refresh: bool,
}

impl Wanted {
    /// The file that names the directory in use.
    fn pointer(self) -> PathBuf {
        cache().join(if self.sid { "current-sid" } else { "current" })
    }
}

/// Record of the fetched packages, kept beside them.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Record {
    suite: String,
    miopen: String,
    packages: Vec<Package>,
}

impl Installation {
    /// Debian's version of the installed MIOpen.
    ///
    /// # Errors
    /// If the record of the packages can't be read.
    pub(crate) fn miopen(&self) -> Result<String> {
        let record: Record = serde_json::from_slice(&fs::read(self.record())?)?;
        Ok(record.miopen)
    }
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
struct Package {
    name: String,
    version: String,
    bytes: u64,
    sha256: String,
}

/// The unpacked packages, if they are there.
pub(super) fn present(wanted: Wanted) -> Option<Installation> {
    let name = fs::read_to_string(wanted.pointer()).ok()?;
    let installation = Installation::new(cache().join(name.trim()));
    installation.record().exists().then_some(installation)
}

/// The unpacked packages; fetched now unless they are there.
pub(super) fn ensure(wanted: Wanted) -> Result<Prepared<Installation>> {
    let _lock = Lock::take("setup.lock")?;
    if !wanted.refresh
        && let Some(installation) = present(wanted)
    {
        return Ok(Prepared::Ready(installation));
    }
    match lists()? {
        Prepared::Ready(apt) => fetch(&apt, wanted),
        Prepared::Unavailable(reason) => Ok(Prepared::Unavailable(reason)),
    }
}

/// The files of one package of sid without those that it depends on; fetched now unless they are there.
pub(crate) fn single(name: &str) -> Result<Prepared<PathBuf>> {
    let _lock = Lock::take("setup.lock")?;
    let directory = cache().join("single").join(name);
    if directory.exists() {
        return Ok(Prepared::Ready(directory));
    }
    let apt = match lists()? {
        Prepared::Ready(apt) => apt,
        Prepared::Unavailable(reason) => return Ok(Prepared::Unavailable(reason)),
    };
    let fetched = || -> Result<()> {
        let version = candidate(&apt.text("apt-cache", &["policy", name])?)
            .ok_or_else(|| format!("the package lists have no {name}"))?;
        let package = describe(name, &version, &apt.text("apt-cache", &["show", &format!("{name}={version}")])?)?;
        // Renamed when it is whole.
        let making = directory.with_extension("part");
        if making.exists() {
            fs::remove_dir_all(&making)?;
        }
        fs::create_dir_all(making.join("packages"))?;
        download(&apt, &[package], &making.join("packages"), &making.join("system"))?;
        fs::rename(making.join("system"), &directory)?;
        Ok(fs::remove_dir_all(&making)?)
    };
    match fetched() {
        Ok(()) => Ok(Prepared::Ready(directory)),
        Err(problem) => unavailable(problem.to_string()),
    }
}

/// apt with the lists of the first mirror that has them.
fn lists() -> Result<Prepared<Apt>> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return unavailable("the packages are for x86-64 Linux");
    }
    for program in ["apt-get", "apt-cache", "dpkg-deb", "dpkg", "sha256sum"] {
        if !is_installed(program) {
            return unavailable(format!("{program} is not installed: the packages are fetched with Debian's tools"));
        }
    }
    let mut reasons = Vec::new();
    let mirrors = mirrors()?;
    if mirrors.is_empty() {
        return unavailable(format!("apt knows no Debian mirror; {MIRROR} can name one"));
    }
    for mirror in mirrors {
        match Apt::update(&mirror)? {
            Ok(apt) => return Ok(Prepared::Ready(apt)),
            Err(reason) => reasons.push(reason),
        }
    }
    unavailable(format!("the package lists can't be fetched: {}", reasons.join("; ")))
}

fn unavailable<T>(reason: impl Into<String>) -> Result<Prepared<T>> {
    Ok(Prepared::Unavailable(Unavailable(reason.into())))
}

/// The Debian mirrors that the system's apt uses.
fn mirrors() -> Result<Vec<String>> {
    if let Some(mirror) = std::env::var(MIRROR).ok().filter(|mirror| !mirror.is_empty()) {
        return Ok(vec![mirror]);
    }
    let output = process::capture(Command::new("apt-get").args([
        "indextargets",
        "--no-release-info",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]))?;
    Ok(debian_mirrors(&String::from_utf8_lossy(&output.stdout)))
}

/// The addresses whose last part is `debian`: a mirror of security updates has neither sid nor experimental.
fn debian_mirrors(addresses: &str) -> Vec<String> {
    let mut mirrors: Vec<String> = Vec::new();
    for address in addresses.lines().map(|line| line.trim().trim_end_matches('/')) {
        if address.rsplit('/').next() == Some("debian") && !mirrors.iter().any(|known| known == address) {
            mirrors.push(address.to_owned());
        }
    }
    mirrors
}

/// apt with directories of its own.
struct Apt {
    directory: PathBuf,
}

impl Apt {
    /// Fetches the package lists; the inner error says why they can't be had.
    fn update(mirror: &str) -> Result<Result<Apt, String>> {
        let apt = Apt { directory: cache().join("apt") };
        for directory in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(apt.directory.join(directory))?;
        }
        let option = if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let sources: String =
            ["sid", "experimental"].map(|suite| format!("deb {option}{mirror} {suite} main\n")).concat();
        fs::write(apt.directory.join("sources.list"), sources)?;
        apt.write_preferences("")?;
        apt.pretend_installed(&BTreeSet::new())?;
        eprintln!("fetching Debian's package lists …");
        let output = process::capture(apt.command("apt-get").args(["-o", "Acquire::Retries=2", "update"]))?;
        let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        let complaints: Vec<String> = String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| line.starts_with("E:") || line.starts_with("W: Failed") || line.starts_with("Err:"))
            .map(str::to_owned)
            .collect();
        // apt-get counts a list that can't be fetched as a warning.
        if output.status.success() && complaints.is_empty() {
            return Ok(Ok(apt));
        }
        Ok(Err(if complaints.is_empty() { process::describe(output.status) } else { complaints.join(", ") }))
    }

    fn command(&self, program: &str) -> Command {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let mut command = Command::new(program);
        for setting in [
            format!("Dir::State={}", path("state")),
            format!("Dir::State::status={}", path("status")),
            format!("Dir::Cache={}", path("cache")),
            format!("Dir::Etc::sourcelist={}", path("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::Etc::preferences={}", path("preferences")),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "APT::Architecture=amd64".to_owned(),
            "APT::Architectures=amd64".to_owned(),
            "APT::Sandbox::User=".to_owned(),
        ] {
            command.arg("-o").arg(setting);
        }
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Prefers `suite` for the packages of ROCm, sid for all others.
    fn write_preferences(&self, suite: &str) -> Result<()> {
        let mut text = "Package: *\nPin: release a=experimental\nPin-Priority: 1\n".to_owned();
        if suite == "experimental" {
            text += &format!("\nPackage: {ROCM}\nPin: release a=experimental\nPin-Priority: 900\n");
        }
        Ok(fs::write(self.directory.join("preferences"), text)?)
    }

    fn pretend_installed(&self, names: &BTreeSet<String>) -> Result<()> {
        let text: String = names
            .iter()
            .map(|name| {
                format!(
                    "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 99:0\n\
                     Maintainer: none\nDescription: replaced\n\n"
                )
            })
            .collect();
        Ok(fs::write(self.directory.join("status"), text)?)
    }

    fn text(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = process::capture(self.command(program).args(arguments))?;
        succeeded(&output, &format!("{program} {}", arguments.join(" ")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn succeeded(output: &Output, what: &str) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{what} failed ({}): {}", process::describe(output.status), process::tail(&output.stderr, 3)).into())
}

/// Finds the newest set of packages that can be had, fetches and unpacks it.
fn fetch(apt: &Apt, wanted: Wanted) -> Result<Prepared<Installation>> {
    let mut reasons = Vec::new();
    for (miopen, suite) in newest_first(&apt.text("apt-cache", &["madison", LIBRARY])?, wanted)? {
        // Both suites move: for some hours a set may have no solution, or a file be gone.
        match fetch_version(apt, &miopen, &suite) {
            Ok(installation) => {
                let name = installation.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
                fs::write(wanted.pointer(), name)?;
                return Ok(Prepared::Ready(installation));
            }
            Err(problem) => reasons.push(format!("{miopen} of {suite}: {problem}")),
        }
    }
    if reasons.is_empty() {
        return unavailable(format!("the package lists have no {LIBRARY}"));
    }
    unavailable(format!("no set of packages can be had: {}", reasons.join("; ")))
}

fn fetch_version(apt: &Apt, miopen: &str, suite: &str) -> Result<Installation> {
    apt.write_preferences(suite)?;
    let packages = resolve(apt, miopen)?;
    let installation = Installation::new(cache().join(format!("{suite}-{miopen}")));
    let record = Record { suite: suite.to_owned(), miopen: miopen.to_owned(), packages };
    let unchanged = fs::read(installation.record())
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok())
        .is_some_and(|found| found == record);
    if !unchanged {
        install(apt, &record, &installation)?;
    }
    Ok(installation)
}

/// The versions that apt lists with the suites that have them, newest first.
fn newest_first(madison: &str, wanted: Wanted) -> Result<Vec<(String, String)>> {
    let mut sorted: Vec<(String, String)> = Vec::new();
    for (version, suite) in madison_lines(madison) {
        if wanted.sid && suite != "sid" {
            continue;
        }
        let mut at = sorted.len();
        for (place, (known, _)) in sorted.iter().enumerate() {
            if Command::new("dpkg").args(["--compare-versions", &version, "gt", known]).status()?.success() {
                at = place;
                break;
            }
        }
        sorted.insert(at, (version, suite));
    }
    Ok(sorted)
}

/// Version and suite of each line of `apt-cache madison`: `name | version | address suite/main amd64 Packages`.
fn madison_lines(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split('|').map(str::trim);
            let (_, version, source) = (fields.next()?, fields.next()?, fields.next()?);
            let suite = source.split_whitespace().nth(1)?.split('/').next()?;
            Some((version.to_owned(), suite.to_owned()))
        })
        .collect()
}

/// The packages to fetch, with their entries in the signed lists.
fn resolve(apt: &Apt, miopen: &str) -> Result<Vec<Package>> {
    let mut packages = plan(apt)?;
    if !packages.iter().any(|(name, version)| name == LIBRARY && version == miopen) {
        return Err(format!("apt does not take {LIBRARY} {miopen}, the newest in its lists").into());
    }
    packages.retain(|(name, _)| !LEFT_OUT.iter().any(|beginning| name.starts_with(beginning)));
    for name in DEVELOPMENT {
        let policy = apt.text("apt-cache", &["policy", name])?;
        let version = candidate(&policy).ok_or_else(|| format!("the package lists have no {name}"))?;
        packages.push((name.to_owned(), version));
    }
    let exact: Vec<String> = packages.iter().map(|(name, version)| format!("{name}={version}")).collect();
    let mut arguments = vec!["show"];
    arguments.extend(exact.iter().map(String::as_str));
    let text = apt.text("apt-cache", &arguments)?;
    let mut described =
        packages.iter().map(|(name, version)| describe(name, version, &text)).collect::<Result<Vec<_>>>()?;
    described.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(described)
}

/// Names and versions that apt would install for MIOpen when the replaced packages were there already.
fn plan(apt: &Apt) -> Result<Vec<(String, String)>> {
    let depends = |names: &[&str]| apt.text("apt-cache", &[&["depends"], names].concat());
    let of_library = depends(&[LIBRARY])?;
    let mut replaced = dependencies(&of_library, &REPLACED);
    let mut wanted: BTreeSet<String> = [LIBRARY.to_owned()].into();
    // MIOpen up to ROCm 6 does without the kernel compiler's library, our tests don't.
    wanted.extend(dependencies(&of_library, &[BUILTINS]).iter().map(|name| name.replace("-builtins", "")));
    for runtime in replaced.iter().filter(|name| name.starts_with(RUNTIME)) {
        wanted.extend(dependencies(&depends(&[runtime])?, &[DISASSEMBLER]));
    }
    let mut install = vec!["install", "--yes", "--no-install-recommends", "--print-uris", "-qq"];
    install.extend(wanted.iter().map(String::as_str));
    // Dependencies of dependencies are found by asking again, until nothing new is to be replaced.
    loop {
        apt.pretend_installed(&replaced)?;
        let packages = planned(&apt.text("apt-get", &install)?);
        let names: Vec<&str> = packages.iter().map(|(name, _)| name.as_str()).collect();
        let more = dependencies(&depends(&names)?, &REPLACED);
        if more.is_subset(&replaced) {
            return Ok(packages);
        }
        replaced.extend(more);
    }
}

/// The names in the output of `apt-cache depends` that begin in one of these ways.
fn dependencies(depends: &str, beginnings: &[&str]) -> BTreeSet<String> {
    depends
        .lines()
        .filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "))
        .filter(|name| beginnings.iter().any(|beginning| name.starts_with(beginning)))
        .map(str::to_owned)
        .collect()
}

/// Name and version from lines `'address' name_version_architecture.deb bytes hash`.
fn planned(plan: &str) -> Vec<(String, String)> {
    plan.lines()
        .filter(|line| line.starts_with('\''))
        .filter_map(|line| {
            let file = line.split_whitespace().nth(1)?;
            let mut parts = file.strip_suffix(".deb")?.split('_');
            let (name, version) = (parts.next()?, parts.next()?);
            Some((name.to_owned(), version.replace("%3a", ":")))
        })
        .collect()
}

fn candidate(policy: &str) -> Option<String> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

/// Package described by the paragraph about this version.
fn describe(name: &str, version: &str, paragraphs: &str) -> Result<Package> {
    for paragraph in paragraphs.split("\n\n") {
        let field = |key: &str| paragraph.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        if field("Package:") != Some(name) || field("Version:") != Some(version) {
            continue;
        }
        if let (Some(bytes), Some(sha256)) = (field("Size:").and_then(|bytes| bytes.parse().ok()), field("SHA256:")) {
            return Ok(Package {
                name: name.to_owned(),
                version: version.to_owned(),
                bytes,
                sha256: sha256.to_owned(),
            });
        }
    }
    Err(format!("the package lists don't tell size and SHA-256 of {name} {version}").into())
}

fn install(apt: &Apt, record: &Record, installation: &Installation) -> Result<()> {
    let total: u64 = record.packages.iter().map(|package| package.bytes).sum();
    eprintln!(
        "fetching MIOpen {} from Debian {}: {} packages, {} MB …",
        record.miopen,
        record.suite,
        record.packages.len(),
        total / 1_000_000
    );
    if installation.directory.exists() {
        fs::remove_dir_all(&installation.directory)?;
    }
    let files = installation.directory.join("packages");
    fs::create_dir_all(&files)?;
    download(apt, &record.packages, &files, &installation.system())?;
    fs::remove_dir_all(&files)?;
    // Written last: with the record there, the set is complete.
    fs::write(installation.record(), serde_json::to_vec_pretty(record)?)?;
    Ok(())
}

/// Fetches packages into `files` and unpacks them in `system`.
fn download(apt: &Apt, packages: &[Package], files: &Path, system: &Path) -> Result<()> {
    let mut command = apt.command("apt-get");
    command.args(["-q", "download"]).current_dir(files);
    for package in packages {
        command.arg(format!("{}={}", package.name, package.version));
    }
    succeeded(&process::capture(&mut command)?, "apt-get download")?;
    let mut sums = std::collections::BTreeMap::new();
    for entry in fs::read_dir(files)? {
        let path = entry?.path();
        let output = process::capture(Command::new("sha256sum").arg("--").arg(&path))?;
        succeeded(&output, "sha256sum")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let sum = text.trim_start_matches('\\').split_whitespace().next().unwrap_or_default().to_owned();
        sums.insert(sum, path);
    }
    for package in packages {
        let Some(path) = sums.get(&package.sha256) else {
            return Err(format!(
                "no fetched file has the SHA-256 that the package lists give for {} {}",
                package.name, package.version
            )
            .into());
        };
        let output = process::capture(Command::new("dpkg-deb").arg("-x").arg(path).arg(system))?;
        succeeded(&output, &format!("unpacking {}", package.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_of_security_updates_are_not_asked() {
        let cases: [(&str, &[&str]); 3] = [
            ("", &[]),
            ("http://m/debian/\nhttp://m/debian\nhttp://m/debian-security/\n", &["http://m/debian"]),
            ("https://a/x/debian/\nhttp://b/ubuntu/\n", &["https://a/x/debian"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(debian_mirrors(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn apt_s_answers_are_read() {
        assert_eq!(
            madison_lines("libmiopen1 | 7.2+dfsg-1 | http://m/debian experimental/main amd64 Packages\nnoise\n"),
            [("7.2+dfsg-1".to_owned(), "experimental".to_owned())]
        );
        assert_eq!(
            planned("Reading …\n'http://m/a_1%3a2-3_amd64.deb' a_1%3a2-3_amd64.deb 12 SHA256:0\n"),
            [("a".to_owned(), "1:2-3".to_owned())]
        );
        assert_eq!(candidate("a:\n  Installed: (none)\n  Candidate: 1.2\n"), Some("1.2".to_owned()));
        assert_eq!(candidate("a:\n  Candidate: (none)\n"), None);
        let wanted: BTreeSet<String> = ["librocblas5".to_owned()].into();
        assert_eq!(
            dependencies("libmiopen1\n  Depends: librocblas5\n |Depends: libc6\n  Suggests: librocrand1\n", &REPLACED),
            wanted
        );
    }

    #[test]
    fn a_package_without_a_hash_is_refused() {
        let cases = [
            ("Package: a\nVersion: 1\nSize: 12\nSHA256: ab\n", true),
            ("Package: b\n\nPackage: a\nVersion: 1\nSize: 12\nSHA256: ab\n", true),
            ("Package: a\nVersion: 2\nSize: 12\nSHA256: ab\n", false),
            ("Package: a\nVersion: 1\nSize: 12\n", false),
            ("Package: a\nVersion: 1\nSize: twelve\nSHA256: ab\n", false),
            ("", false),
        ];
        for (stanza, good) in cases {
            assert_eq!(describe("a", "1", stanza).is_ok(), good, "{stanza:?}");
        }
    }
}
