"""The machine's eBPF programs, whoever loaded them: what they are, and what they cost."""

from stackhound.bpf.monitor import Monitor, Overhead, Rate, Reading
from stackhound.bpf.programs import (
    Attachment,
    Map,
    Owner,
    Program,
    choose_programs,
    list_maps,
    list_programs,
    list_programs_alone,
)

__all__ = [
    "Attachment",
    "Map",
    "Monitor",
    "Overhead",
    "Owner",
    "Program",
    "Rate",
    "Reading",
    "choose_programs",
    "list_maps",
    "list_programs",
    "list_programs_alone",
]
