// Text files to token files: what `ms-data encode` does. Input is streamed, so a file may be larger than memory; what
// is compressed is read as what it holds. Nothing exists under the output's names until all of it is complete.
// An encoding that was killed is gone on with by the next of the same prefix, files and options; its result, and that
// of any number of workers, is the same to the byte.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/chat_encoder.h"
#include "data/document_reader.h"
#include "data/encode_state.h"
#include "data/image_encoder.h"
#include "data/note.h"
#include "data/tokenizer.h"

namespace ms::data {

struct EncodeOptions {
  ReadOptions read;
  // Lines and elements that are not JSON or do not have the fields are counted; otherwise the first one is an error.
  bool skip_bad_lines = false;
  // JSON is conversations, which have no frame of the tokenizer; nullptr: it is texts.
  const ChatEncoder* chat = nullptr;
  // JSON is texts with images, whose encoding is not resumed; nullptr: it is texts.
  const ImageEncoder* images = nullptr;
  // A token file that is there is replaced; otherwise it is an error.
  bool replace = false;
  int workers = 0;  // 0: default_workers()
  // How much output is written at most until how far it has come is saved; after some seconds it is at any rate.
  std::int64_t save_every_bytes = std::int64_t{64} << 20;
  // Called now and then with how much of the input has been read, and how much there is, in bytes as on disk.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress;
};

// The paths that a file names, one a line, empty lines left out; "-" is standard input. Error("data.input", user) where
// it cannot be opened.
std::vector<std::string> read_list(const std::string& path);

struct Inputs {
  std::vector<std::string> files;
  std::vector<std::string> named;  // those of them that are not found in a directory: ReadOptions::named
};
// The files that `paths` mean, in order: files as they are, "-" as standard input; with `recursive`, the regular files
// of a directory and those below it, sorted by path. Error("data.input", user) for a path that is not there, or a
// directory without `recursive`.
Inputs expand_inputs(std::span<const std::string> paths, bool recursive);

// Writes the documents of all files to PREFIX.bin and .idx, each in the tokenizer's frame, and
// the note, whose counts it fills. Documents without a byte of text are left out. A text that holds a NUL byte gives
// nothing, wherever it holds it, unless it is named. Errors: of DocumentReader and TokenWriter; "data.json", user: a
// line of JSON Lines that is no JSON, or lacks a field; "data.output", user: a token file is there, or another process
// writes it.
EncodeReport encode(const std::string& prefix, std::span<const std::string> files, const Tokenizer& tokenizer,
                    Note note, const EncodeOptions& options);

}  // namespace ms::data
