//! Operations of `/ui`: the files of the console.

use super::super::console::{self, Console};
use super::operation::{Failures, Operation, Tag, text};

const CONSOLE: Tag = Tag("console", Failures::Problems);

pub(super) fn operations() -> Vec<Operation> {
    vec![
        CONSOLE
            .operation("get /ui", Console::Begin, "console", "Leads to the console")
            .gives_nothing(308, "To `/ui/`"),
        CONSOLE
            .operation("get /ui/{file}", Console::File, "consoleFile", "A file of the console, or its page")
            .gives(200, console::MEDIA_TYPES.map(|(_, media_type)| (media_type, text())), "The file")
            .with_header(200, "ETag", "Its content")
            .gives_nothing(304, "The client has it")
            .fails([404]),
    ]
}
