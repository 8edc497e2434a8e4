// Text files to token files: what `ms-data encode` does. Input is streamed, so a file may be larger than memory;
// gzip-compressed input is read as what it holds. Nothing exists under the output's name until all of it is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/token_writer.h"
#include "data/tokenizer.h"

namespace ms::data {

struct EncodeOptions {
  // A line that is exactly this ends a document ("%" in fortune files). Without it, each file is one document.
  std::optional<std::string> split_on;
  // JSON Lines are encoded as the text that they are, braces and keys included; otherwise they are refused.
  bool json_as_text = false;
  // Called now and then with how much of the input has been read, and how much there is, in bytes as on disk.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress;
};

struct EncodeReport {
  std::int64_t num_files = 0;         // that gave documents
  std::int64_t num_binary_files = 0;  // skipped: a NUL byte, or the format, says that it is no text; the first ones are
                                      // named in warnings
  std::int64_t num_empty_files = 0;   // skipped, because they hold no text
  std::int64_t text_bytes = 0;        // of all documents, uncompressed
  std::int64_t num_splits = 0;        // lines that ended a document, as split_on says
};

// The paths that a file names, one a line, empty lines left out; "-" is standard input. Error("data.input", user) where
// it cannot be opened.
std::vector<std::string> read_list(const std::string& path);

// The files that `paths` mean, in order: files as they are, "-" as standard input; with `recursive`, the regular files
// of a directory and those below it, sorted by path. Error("data.input", user) for a path that is not there, or a
// directory without `recursive`.
std::vector<std::string> expand_inputs(std::span<const std::string> paths, bool recursive);

// Appends the documents of all files to `writer`, each ended by the tokenizer's end-of-document token; does not commit.
// Documents without a byte of text are left out. A file that holds a NUL byte gives nothing, wherever it holds it.
// Errors: "data.input", user where a file cannot be opened, storage where it cannot be read or its gzip data is
// damaged; "data.json", user where it holds JSON Lines.
EncodeReport encode_files(std::span<const std::string> files, const Tokenizer& tokenizer, const EncodeOptions& options,
                          TokenWriter& writer);

}  // namespace ms::data
