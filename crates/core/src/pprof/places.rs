//! Where samples were: the locations, functions and mappings that are in use, numbered from 1.

use super::StringTable;
use hashbrown::HashSet;

use super::message::{Function, Line, Location, Mapping};
use crate::Error;
use crate::columns::{Strings, TableSet};

/// What readers take for the kernel, and do not try to open.
const KERNEL: &str = "[kernel.kallsyms]_stext";

/// The tables, and what of them is in use.
pub(super) struct Places<'t> {
    location_object: &'t [u32],
    location_address: &'t [u64],
    /// Lines by location, innermost first: where each location's begin in `lines`.
    line_starts: Vec<u32>,
    lines: Vec<u32>,
    line_function: &'t [u32],
    line: &'t [u32],
    column: &'t [u32],
    function: FunctionColumns<'t>,
    object: ObjectColumns<'t>,
    /// Paths of the processes' executables.
    programs: HashSet<&'t str>,
    location_ids: Numbering,
    function_ids: Numbering,
    mapping_ids: Numbering,
}

struct FunctionColumns<'t> {
    name: Strings<'t>,
    system_name: Strings<'t>,
    file: Strings<'t>,
}

struct ObjectColumns<'t> {
    kind: Strings<'t>,
    path: Strings<'t>,
    build_id: Strings<'t>,
}

impl<'t> Places<'t> {
    pub(super) fn read(tables: &'t TableSet) -> Result<Self, Error> {
        let (locations, lines) = (tables.table("locations")?, tables.table("lines")?);
        let (functions, objects) = (tables.table("functions")?, tables.table("objects")?);
        let processes = tables.table("processes")?;
        let executable = processes.strings("executable")?;
        let line_location = lines.references("location", locations.rows())?;
        let (line_starts, order) = group(line_location, lines.uint16("depth")?, locations.rows());
        Ok(Self {
            location_object: locations.references("object", objects.rows())?,
            location_address: locations.uint64("address")?,
            line_starts,
            lines: order,
            line_function: lines.references("function", functions.rows())?,
            line: lines.uint32("line")?,
            column: lines.uint32("column")?,
            function: FunctionColumns {
                name: functions.strings("name")?,
                system_name: functions.strings("system_name")?,
                file: functions.strings("file")?,
            },
            object: ObjectColumns {
                kind: objects.strings("kind")?,
                path: objects.strings("path")?,
                build_id: objects.strings("build_id")?,
            },
            programs: (0..processes.rows() as u32)
                .map(|process| executable.get(process))
                .collect(),
            location_ids: Numbering::new(locations.rows()),
            function_ids: Numbering::new(functions.rows()),
            mapping_ids: Numbering::new(objects.rows()),
        })
    }

    /// The number of a location, which is in use from now on.
    pub(super) fn location_id(&mut self, location: u32) -> u64 {
        self.location_ids.number(location)
    }

    /// Everything that is in use.
    pub(super) fn finish(mut self, strings: &mut StringTable) -> (Vec<Mapping>, Vec<Location>, Vec<Function>) {
        let used = std::mem::take(&mut self.location_ids.used);
        let locations: Vec<Location> = (1..)
            .zip(&used)
            .map(|(id, &location)| self.location(id, location))
            .collect();
        let mut mappings: Vec<Mapping> = (1..)
            .zip(&self.mapping_ids.used)
            .map(|(id, &object)| self.mapping(id, object, strings))
            .collect();
        for location in locations.iter().filter(|location| location.mapping_id > 0) {
            self.note(location, &mut mappings[location.mapping_id as usize - 1]);
        }
        mappings.sort_by_key(|mapping| !self.is_program(mapping)); // readers take the first one for the main program
        let functions = (1..).zip(&self.function_ids.used);
        let functions = functions
            .map(|(id, &function)| self.function(id, function, strings))
            .collect();
        (mappings, locations, functions)
    }

    fn is_program(&self, mapping: &Mapping) -> bool {
        self.programs
            .contains(self.object.path.get(self.mapping_ids.used[mapping.id as usize - 1]))
    }

    fn location(&mut self, id: u64, location: u32) -> Location {
        let row = location as usize;
        let object = self.location_object[row];
        let lines = self.line_starts[row] as usize..self.line_starts[row + 1] as usize;
        let line = lines.map(|at| {
            let row = self.lines[at] as usize;
            Line {
                function_id: self.function_ids.number(self.line_function[row]),
                line: self.line[row].into(),
                column: self.column[row].into(),
            }
        });
        let line = line.collect();
        let has_file = matches!(self.object.kind.get(object), "elf" | "vdso" | "kernel" | "module");
        let mapping_id = if has_file { self.mapping_ids.number(object) } else { 0 };
        Location {
            id,
            mapping_id,
            address: self.location_address[row],
            line,
        }
    }

    fn mapping(&self, id: u64, object: u32, strings: &mut StringTable) -> Mapping {
        let path = if self.object.kind.get(object) == "kernel" {
            KERNEL
        } else {
            self.object.path.get(object)
        };
        let build_id = strings.id(self.object.build_id.get(object));
        Mapping {
            id,
            filename: strings.id(path),
            build_id,
            ..Mapping::default()
        }
    }

    /// Extend a mapping to one of its locations, and note what is known there.
    fn note(&self, location: &Location, mapping: &mut Mapping) {
        mapping.memory_limit = mapping.memory_limit.max(location.address.saturating_add(1));
        for line in &location.line {
            let function = self.function_ids.used[line.function_id as usize - 1];
            mapping.has_functions = true;
            mapping.has_filenames |= !self.function.file.get(function).is_empty();
            mapping.has_line_numbers |= line.line > 0;
            mapping.has_inline_frames |= line.line > 0; // they are looked up together
        }
    }

    fn function(&self, id: u64, function: u32, strings: &mut StringTable) -> Function {
        Function {
            id,
            name: strings.id(self.function.name.get(function)),
            system_name: strings.id(self.function.system_name.get(function)),
            filename: strings.id(self.function.file.get(function)),
        }
    }
}

/// Numbers from 1 for the rows in use, in the order of their first use.
struct Numbering {
    numbers: Vec<u64>,
    used: Vec<u32>,
}

impl Numbering {
    fn new(rows: usize) -> Self {
        Self {
            numbers: vec![0; rows],
            used: Vec::new(),
        }
    }

    fn number(&mut self, row: u32) -> u64 {
        let number = &mut self.numbers[row as usize];
        if *number == 0 {
            self.used.push(row);
            *number = self.used.len() as u64;
        }
        *number
    }
}

/// The lines in the order of (location, depth), and where each location's begin.
fn group(location: &[u32], depth: &[u16], locations: usize) -> (Vec<u32>, Vec<u32>) {
    let mut order: Vec<u32> = (0..location.len() as u32).collect();
    order.sort_by_key(|&row| (location[row as usize], depth[row as usize])); // linear when they are in order
    let mut starts = vec![0; locations + 1];
    for &location in location {
        starts[location as usize + 1] += 1;
    }
    for location in 0..locations {
        starts[location + 1] += starts[location];
    }
    (starts, order)
}
