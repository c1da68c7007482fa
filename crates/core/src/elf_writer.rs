//! ELF files for tests, written byte by byte as the specification says.

/// Addresses are offsets in the file plus this.
pub(crate) const BASE: u64 = 0x40_0000;

/// Where the code begins: behind the headers.
pub(crate) const CODE_OFFSET: u64 = 0x1000;
pub(crate) const CODE: u64 = BASE + CODE_OFFSET;

pub(crate) const X86_64: u16 = 62;
pub(crate) const ARM64: u16 = 183;

/// A file of code, and of sections behind it.
pub(crate) struct File {
    pub(crate) machine: u16,
    pub(crate) code: Vec<u8>,
    pub(crate) entry: u64,
    /// Name, flags, contents.
    pub(crate) sections: Vec<(&'static str, u64, Vec<u8>)>,
    pub(crate) has_section_headers: bool,
    /// Which section the program headers know as `.eh_frame_hdr`.
    pub(crate) eh_frame_hdr: Option<usize>,
}

impl File {
    pub(crate) fn new(machine: u16, code_bytes: usize) -> Self {
        Self {
            machine,
            code: vec![0xcc; code_bytes],
            entry: 0,
            sections: Vec::new(),
            has_section_headers: true,
            eh_frame_hdr: None,
        }
    }

    /// Where the next section will be.
    pub(crate) fn next_address(&self) -> u64 {
        let sections = self.sections.iter().map(|section| section.2.len());
        CODE + (self.code.len() + sections.sum::<usize>()) as u64
    }

    pub(crate) fn with(mut self, name: &'static str, contents: impl FnOnce(u64) -> Vec<u8>) -> Self {
        self.sections.push((name, 0, contents(self.next_address())));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut body = self.code.clone();
        let mut headers = vec![0; 64];
        let mut names = b"\0".to_vec();
        let mut addresses = Vec::new();
        let strings = ("", 0, Vec::new());
        for (name, flags, contents) in self.sections.iter().chain([&strings]) {
            let offset = CODE_OFFSET + body.len() as u64;
            addresses.push(BASE + offset);
            headers.extend([names.len() as u32, 1].map(u32::to_le_bytes).concat());
            names.extend([name.as_bytes(), b"\0"].concat());
            let contents = if name.is_empty() { &names } else { contents };
            let words = [*flags, BASE + offset, offset, contents.len() as u64, 0, 1, 0];
            headers.extend(words.map(u64::to_le_bytes).concat());
            body.extend(contents);
        }
        let hdr = self.eh_frame_hdr.map_or(0, |index| addresses[index]);
        let (code, all) = (self.code.len() as u64, (body.len() + headers.len()) as u64);
        let section_headers = if self.has_section_headers {
            CODE_OFFSET + body.len() as u64
        } else {
            0
        };
        let mut file = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &3_u16.to_le_bytes()].concat();
        file.extend([&self.machine.to_le_bytes()[..], &1_u32.to_le_bytes()].concat());
        file.extend([self.entry, 64, section_headers].map(u64::to_le_bytes).concat());
        let count = self.sections.len() as u16 + 2;
        file.extend([0, 0, 64, 56, 3, 64, count, count - 1].map(u16::to_le_bytes).concat());
        for (kind, flags, address, bytes) in [(1_u32, 5_u32, CODE, code), (1, 4, BASE, 0), (0x6474_e550, 4, hdr, 0)] {
            let bytes = if address == BASE { CODE_OFFSET + all } else { bytes };
            file.extend([kind, flags].map(u32::to_le_bytes).concat());
            file.extend(
                [address - BASE.min(address), address, address, bytes, bytes, 1]
                    .map(u64::to_le_bytes)
                    .concat(),
            );
        }
        file.resize(CODE_OFFSET as usize, 0);
        [file, body, headers].concat()
    }
}
