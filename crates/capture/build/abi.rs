//! Rust of `bpf/abi.h`, which keeps to a small subset of C (its first comment says which).

use std::collections::HashMap;
use std::fmt::Write;

/// Sizes and alignments in bytes of the types seen so far.
type Layouts = HashMap<String, (usize, usize)>;

/// C's name, Rust's, and bytes.
const SCALARS: [(&str, &str, usize); 6] = [
    ("u8", "u8", 1),
    ("u16", "u16", 2),
    ("u32", "u32", 4),
    ("u64", "u64", 8),
    ("s16", "i16", 2),
    ("s32", "i32", 4),
];

/// The whole Rust file for a header.
pub fn generate(header: &str) -> String {
    let text = without_comments(header);
    let mut rust = String::new();
    let mut constants = HashMap::new();
    let mut layouts: Layouts = SCALARS
        .map(|(name, _, bytes)| (name.to_string(), (bytes, bytes)))
        .into();
    for line in text.lines().filter(|line| line.starts_with("#define ")) {
        if let [_, name, value] = line.split_whitespace().collect::<Vec<_>>()[..] {
            constants.insert(name.to_string(), value.parse::<usize>().expect("a number"));
            writeln!(rust, "/// `{name}`.\npub const {name}: usize = {value};").unwrap();
        }
    }
    for block in text.split("};") {
        if let Some((head, body)) = block.split_once('{') {
            let head = head.lines().last().unwrap_or_default();
            match head.split_whitespace().collect::<Vec<_>>()[..] {
                ["enum", name] => rust += &enumeration(name, body),
                ["struct", name] => rust += &structure(name, body, &constants, &mut layouts),
                _ => panic!("bpf/abi.h: {head:?} is neither enum nor struct"),
            }
        }
    }
    rust
}

fn without_comments(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("/*") {
        text += before;
        rest = after.split_once("*/").expect("a comment ends").1;
    }
    text + rest
}

fn enumeration(name: &str, body: &str) -> String {
    let mut rust = String::new();
    for variant in body.split(',').map(str::trim).filter(|variant| !variant.is_empty()) {
        let (variant, value) = variant.split_once('=').expect("an explicit number");
        writeln!(
            rust,
            "/// Of `enum {name}`.\npub const {}: u32 = {};",
            variant.trim(),
            value.trim()
        )
        .unwrap();
    }
    rust
}

fn structure(name: &str, body: &str, constants: &HashMap<String, usize>, layouts: &mut Layouts) -> String {
    let rust_name = camel_case(name);
    let mut rust =
        format!("/// `struct {name}`.\n#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {rust_name} {{\n");
    let (mut size, mut alignment) = (0, 1);
    for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let field = field.strip_prefix("struct ").unwrap_or(field);
        let (kind, field) = field.split_once(char::is_whitespace).expect("a type and a name");
        let (field, count) = array_length(field.trim(), constants);
        let (bytes, align) = layouts[kind];
        assert_eq!(size % align, 0, "bpf/abi.h: padding before {name}.{field}");
        size += bytes * count.unwrap_or(1);
        alignment = alignment.max(align);
        let scalar = SCALARS.iter().find(|(name, ..)| *name == kind);
        let kind = scalar.map_or_else(|| camel_case(kind), |(_, name, _)| name.to_string());
        let kind = count.map_or(kind.clone(), |count| format!("[{kind}; {count}]"));
        writeln!(rust, "    /// `{field}`.\n    pub {field}: {kind},").unwrap();
    }
    assert_eq!(size % alignment, 0, "bpf/abi.h: padding at the end of {name}");
    layouts.insert(name.into(), (size, alignment));
    writeln!(rust, "}}\nconst _: () = assert!(size_of::<{rust_name}>() == {size});").unwrap();
    rust
}

fn array_length<'a>(field: &'a str, constants: &HashMap<String, usize>) -> (&'a str, Option<usize>) {
    let Some((field, length)) = field.split_once('[') else {
        return (field, None);
    };
    let length = length.trim_end_matches(']');
    let length = constants
        .get(length)
        .copied()
        .unwrap_or_else(|| length.parse().expect("a length"));
    (field, Some(length))
}

fn camel_case(name: &str) -> String {
    name.split('_')
        .map(|word| word[..1].to_uppercase() + &word[1..])
        .collect()
}
