//! Which module a file is, as far as its path tells.

/// What comes before the modules' own folders, where they are installed.
const ROOTS: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// How modules begin that are compiled into the interpreter.
const FROZEN: &str = "<frozen ";

/// The module's name; None when it is of no file, like `<string>`.
///
/// Qualified with its packages' names where the path shows where they begin: below `site-packages`, `dist-packages` or
/// `lib/python3.x`. Otherwise the file's own name, or its folder's for an `__init__.py`.
pub(super) fn module_of(file: &str) -> Option<String> {
    if let Some(frozen) = file.strip_prefix(FROZEN) {
        return Some(frozen.strip_suffix('>')?.to_owned());
    }
    if file.is_empty() || file.starts_with('<') {
        return None;
    }
    let path = file.strip_suffix(".py").unwrap_or(file);
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    let module = match installed(path) {
        Some(module) => module.replace('/', "."),
        None => path.rsplit('/').next()?.to_owned(),
    };
    (!module.is_empty()).then_some(module)
}

/// The part of a path below where modules are installed.
fn installed(path: &str) -> Option<&str> {
    let below = ROOTS
        .iter()
        .find_map(|root| path.rsplit_once(root).map(|(_, below)| below));
    below.or_else(|| {
        let (_, below) = path.rsplit_once("/lib/python3.")?;
        let (minor, below) = below.split_once('/')?;
        minor
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b't')
            .then_some(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Installed modules have their packages' names, others their own.
    #[test]
    fn modules_are_named_by_their_paths() {
        let module = |file| module_of(file).unwrap();
        assert_eq!(module("/usr/lib/python3.11/json/decoder.py"), "json.decoder");
        assert_eq!(module("/usr/lib/python3.11/json/__init__.py"), "json");
        assert_eq!(module("/opt/lib/python3.14t/typing.py"), "typing");
        assert_eq!(
            module("/v/lib/python3.9/site-packages/django/db/models/query.py"),
            "django.db.models.query"
        );
        assert_eq!(module("/usr/lib/python3/dist-packages/apt/cache.py"), "apt.cache");
        assert_eq!(module("/home/me/work/script.py"), "script");
        assert_eq!(module("/home/me/café/__init__.py"), "café");
        assert_eq!(module("script.py"), "script");
        assert_eq!(module("<frozen importlib._bootstrap>"), "importlib._bootstrap");
    }

    /// What was typed in, or made by a program, has no module.
    #[test]
    fn code_without_a_file_has_no_module() {
        for file in ["<string>", "<stdin>", "", "/", "<frozen x", "<ipython-input-1-0a>"] {
            assert_eq!(module_of(file), None, "{file}");
        }
    }
}
