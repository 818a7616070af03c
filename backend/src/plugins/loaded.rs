//! One loaded plugin.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};

use hipdnn_schemas::EngineApiVersion;
use hipdnn_sdk_bindings::hipdnn::plugin::{
    GetLastErrorString, GetText, GetType, PluginStatus, PluginType, SetLogLevel, Severity,
};
use hipdnn_sdk_bindings::library::Library;

use super::api::EngineApi;
use crate::error::{Error, Result};
use crate::log;
use crate::names;

/// The newest plugin ABI whose features this library can pass on.
pub(crate) const NEWEST_API: EngineApiVersion = EngineApiVersion { major: 1, minor: 4, patch: 0 };

/// An engine that a plugin offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Engine {
    pub(crate) id: i64,
    /// As shown to clients.
    pub(crate) name: String,
}

/// A loaded plugin with the engines it was admitted with. Dropping it unloads it.
pub(crate) struct Plugin {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) api_version: EngineApiVersion,
    /// Ascending by id.
    pub(crate) engines: Vec<Engine>,
    /// Number of engines that the plugin itself counts, with those that were not admitted.
    pub(crate) offered: u32,
    pub(super) api: EngineApi,
    // Last: the pointers above lead into it.
    _library: Library,
}

impl Plugin {
    /// Loads a plugin and admits its engines but those whose ids are in `taken`, which it adds to: engine id to the name
    /// of its plugin.
    pub(crate) fn load(path: &Path, taken: &mut HashMap<i64, String>) -> std::result::Result<Plugin, String> {
        // SAFETY: plugins are code that the user installed or named for loading into this process.
        let library = unsafe { Library::open("engine plugin", [path]) }.map_err(|error| error.to_string())?;
        let api = EngineApi::resolve(&library).map_err(|error| format!("Failed to get symbol: {error}"))?;
        let name = text(api.get_last_error_string, "hipdnnPluginGetName", api.get_name)?;
        expect_type(api.get_last_error_string, api.get_type, PluginType::ENGINE, "ENGINE")?;
        let version = text(api.get_last_error_string, "hipdnnPluginGetVersion", api.get_version)?;
        if let Some(set_logging_callback) = api.set_logging_callback {
            // SAFETY: the callback lives as long as this library, which unloads plugins before it goes.
            unsafe { set_logging_callback(Some(plugin_log)) };
        }
        if let Some(set_log_level) = api.set_log_level {
            // SAFETY: takes a number.
            unsafe { set_log_level(log::level()) };
        }
        let api_version = match api.get_api_version {
            Some(get_api_version) => {
                let text = text(api.get_last_error_string, "hipdnnPluginGetApiVersion", get_api_version)?;
                version_of(&text)?
            }
            None => EngineApiVersion { major: 1, minor: 0, patch: 0 },
        };
        // Major 0 is what plugins reported before the ABI was numbered.
        if api_version.major > 1 {
            return Err(format!(
                "its API version {} does not match expected engine API major version 1",
                shown(api_version)
            ));
        }
        let ids = engine_ids(&api)?;
        let offered = ids.len() as u32;
        let engines = admit(&api, &name, &ids, taken);
        Ok(Plugin { path: path.to_path_buf(), name, version, api_version, engines, offered, api, _library: library })
    }

    /// The call's failure as an error with the plugin's own text.
    pub(crate) fn check(&self, function: &str, status: PluginStatus) -> Result<()> {
        check(self.api.get_last_error_string, function, status)
            .map_err(|reason| Error::plugin(format!("plugin {}: {reason}", self.name)))
    }

    /// Passes the log level on.
    pub(crate) fn set_log_level(&self, level: Severity) {
        pass_log_level(&self.name, self.api.set_log_level, level);
    }

    pub(crate) fn has_overrides(&self) -> bool {
        self.api.execute_with_overrides.is_some()
    }

    /// True if plans can be stored. The functions once had another signature under the same names; the states of the
    /// ABI that name engines have the present one.
    pub(crate) fn has_serialization(&self) -> bool {
        self.api.get_engine_name.is_some()
            && self.api.serialize_context.is_some()
            && self.api.destroy_serialized_context.is_some()
            && self.api.create_context_from_serialized.is_some()
    }
}

/// Checks that a plugin is of the type that is called `name`.
pub(super) fn expect_type(
    last_error: GetLastErrorString,
    get_type: GetType,
    wanted: PluginType,
    name: &str,
) -> std::result::Result<(), String> {
    let mut kind = PluginType::UNSPECIFIED;
    // SAFETY: the pointer is valid for the call.
    let status = unsafe { get_type(&mut kind) };
    check(last_error, "hipdnnPluginGetType", status)?;
    if kind == wanted {
        return Ok(());
    }
    Err(format!("expected a plugin of type {name} ({}), got {}", wanted.0, kind.0))
}

/// Passes the log level on to a plugin that takes one.
pub(super) fn pass_log_level(plugin: &str, set_log_level: Option<SetLogLevel>, level: Severity) {
    let Some(set_log_level) = set_log_level else { return };
    // SAFETY: takes a number, at any time and from any thread.
    let status = unsafe { set_log_level(level) };
    if status != PluginStatus::SUCCESS && status != PluginStatus::INVALID_VALUE {
        log::warning!("plugin {plugin}: hipdnnPluginSetLogLevel gave {status}");
    }
}

/// Text of the version, for messages.
pub(crate) fn shown(version: EngineApiVersion) -> String {
    format!("{}.{}.{}", version.major, version.minor, version.patch)
}

/// Log callback of the plugins.
pub(super) unsafe extern "C" fn plugin_log(severity: Severity, message: *const c_char) {
    // SAFETY: plugins pass a text that lives for the call, or null.
    unsafe { crate::abi::unwind::log_from(log::PLUGIN, severity.0, message) };
}

/// A text of the plugin that has this function for its errors.
pub(super) fn text(
    last_error: GetLastErrorString,
    function: &str,
    get: GetText,
) -> std::result::Result<String, String> {
    let mut text = std::ptr::null();
    // SAFETY: the pointer is valid for the call.
    let status = unsafe { get(&mut text) };
    check(last_error, function, status)?;
    if text.is_null() {
        return Err(format!("{function} gave no text"));
    }
    // SAFETY: the plugin's texts end in a NUL and live as long as it is loaded.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A failed call as a reason, with the text of the plugin that has this function for its errors.
pub(super) fn check(
    last_error: GetLastErrorString,
    function: &str,
    status: PluginStatus,
) -> std::result::Result<(), String> {
    if status == PluginStatus::SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the pointer is valid for the call, which is on the thread of the failure.
    unsafe { last_error(&mut text) };
    let reason = if text.is_null() {
        String::new()
    } else {
        // SAFETY: the text ends in a NUL and is copied before the next call on this thread.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Err(format!("{function} gave {status} ({}): {reason}", status.0))
}

/// Version of the ABI, as a plugin tells it.
pub(super) fn version_of(text: &str) -> std::result::Result<EngineApiVersion, String> {
    parse_version(text).ok_or_else(|| format!("expected an API version MAJOR.MINOR.PATCH, got {text:?}"))
}

/// `MAJOR.MINOR.PATCH`, whatever follows.
fn parse_version(text: &str) -> Option<EngineApiVersion> {
    let mut parts = text.splitn(3, '.');
    let (major, minor, patch) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = patch.bytes().take_while(u8::is_ascii_digit).count();
    Some(EngineApiVersion {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        patch: patch[..digits].parse().ok()?,
    })
}

/// Maximum number of engines of one plugin: more are a wrong count.
const MAX_ENGINES: u32 = 1 << 16;

fn engine_ids(api: &EngineApi) -> std::result::Result<Vec<i64>, String> {
    const FUNCTION: &str = "hipdnnEnginePluginGetAllEngineIds";
    let mut count = 0;
    // SAFETY: no ids are asked for; the count is valid for the call.
    let status = unsafe { (api.get_all_engine_ids)(std::ptr::null_mut(), 0, &mut count) };
    check(api.get_last_error_string, FUNCTION, status)?;
    if !(1..=MAX_ENGINES).contains(&count) {
        return Err(format!("expected 1 to {MAX_ENGINES} engines, got {count}"));
    }
    let mut ids = vec![0; count as usize];
    let mut written = 0;
    // SAFETY: there is room for `count` ids.
    let status = unsafe { (api.get_all_engine_ids)(ids.as_mut_ptr(), count, &mut written) };
    check(api.get_last_error_string, FUNCTION, status)?;
    if written != count {
        return Err(format!("{FUNCTION} counted {count} engines, then gave {written}"));
    }
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("engine id {} is given twice", pair[0])),
        None => Ok(ids),
    }
}

fn admit(api: &EngineApi, plugin: &str, ids: &[i64], taken: &mut HashMap<i64, String>) -> Vec<Engine> {
    let mut engines = Vec::new();
    let mut named = 0;
    for &id in ids {
        let shown = names::hexadecimal(id);
        let name = match engine_name(api, id) {
            Ok(name) => name,
            Err(reason) => {
                log::error!("plugin {plugin}: engine {shown} is left out: {reason}");
                continue;
            }
        };
        if let Some(name) = name.as_ref().filter(|name| names::id_of(name) != id) {
            log::error!(
                "plugin {plugin} reports engine name '{name}' for engine {shown}, but the name stands for {}: the engine \
                 is left out",
                names::hexadecimal(names::id_of(name))
            );
            continue;
        }
        if let Some(owner) = taken.get(&id) {
            log::error!(
                "plugin {plugin} declares engine {shown}, which plugin {owner} has already: the engine is left out"
            );
            continue;
        }
        taken.insert(id, plugin.to_string());
        named += usize::from(name.is_some());
        engines.push(Engine { id, name: name.unwrap_or_else(|| names::fallback_name(id)) });
    }
    if named == 0 && !engines.is_empty() {
        log::warning!("plugin {plugin} names none of its engines");
    }
    engines
}

fn engine_name(api: &EngineApi, id: i64) -> std::result::Result<Option<String>, String> {
    const FUNCTION: &str = "hipdnnEnginePluginGetEngineName";
    let Some(get_engine_name) = api.get_engine_name else { return Ok(None) };
    let mut text = std::ptr::null();
    // SAFETY: the pointer is valid for the call.
    let status = unsafe { get_engine_name(id, &mut text) };
    if status == PluginStatus::NOT_APPLICABLE {
        return Ok(None);
    }
    check(api.get_last_error_string, FUNCTION, status)?;
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the plugin's texts end in a NUL and live as long as it is loaded.
    let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    Ok(Some(name).filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, want) in [
            ("1.4.0", Some((1, 4, 0))),
            ("0.0.0", Some((0, 0, 0))),
            ("1.2.0-rc1", Some((1, 2, 0))),
            ("1.2.3.4", Some((1, 2, 3))),
            ("1.2", None),
            ("1.2.x", None),
            ("", None),
            ("a.b.c", None),
            ("99999999999.0.0", None),
        ] {
            let want = want.map(|(major, minor, patch)| EngineApiVersion { major, minor, patch });
            assert_eq!(parse_version(text), want, "{text:?}");
        }
    }
}
