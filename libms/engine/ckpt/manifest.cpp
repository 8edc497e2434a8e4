// Writing manifests. The document's frame is indented for people; a file's entry is one line, because there may be
// thousands of them and they are made apart, each by the rank that wrote the file.
#include "ckpt/manifest.h"

#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/json.h"
#include "ckpt/blocks.h"
#include "ckpt/manifest_tail.h"

namespace ms::ckpt {

namespace {

// A JSON string, quotes included.
std::string json_text(std::string_view text) { return Json(text).dump(); }

std::string slice_json(const Slice& s) {
  return fmt::format("[{},{},{},{},{},{},{},{},{}]", json_text(s.name), s.global_rows, s.global_cols, s.row0, s.rows,
                     s.col0, s.cols, s.elements.begin, s.elements.end);
}

}  // namespace

std::int64_t Manifest::size_bytes() const {
  std::int64_t bytes = 0;
  for (const FileEntry& file : files) bytes += file.size_bytes;
  return bytes;
}

std::string entry_to_json(const FileEntry& entry) {
  // The states of a parameter mostly have the same slice: it is written once.
  std::unordered_map<std::string, std::size_t> known;
  std::string slices, pieces;
  for (const PlacedPiece& placed : entry.pieces) {
    std::string slice = slice_json(placed.piece.slice);
    const auto [found, added] = known.try_emplace(std::move(slice), known.size());
    if (added) slices += (slices.empty() ? "" : ",") + found->first;
    fmt::format_to(std::back_inserter(pieces), "{}[\"{}\",\"{}\",{},{}]", pieces.empty() ? "" : ",",
                   to_string(placed.piece.state), tensor::to_string(placed.piece.dtype), found->second, placed.offset);
  }
  std::string hashes;
  for (const std::uint64_t hash : entry.hashes) {
    fmt::format_to(std::back_inserter(hashes), "{}\"{:016x}\"", hashes.empty() ? "" : ",", hash);
  }
  return fmt::format(R"({{"name":{},"size":{},"xxh64":[{}],"slices":[{}],"pieces":[{}]}})", json_text(entry.name),
                     entry.size_bytes, hashes, slices, pieces);
}

std::size_t entry_json_bound(const std::string& name, const std::vector<Piece>& pieces, std::int64_t size_bytes) {
  FileEntry longest{.name = name,
                    .size_bytes = size_bytes,
                    .hashes = std::vector<std::uint64_t>(static_cast<std::size_t>(block_count(size_bytes))),
                    .pieces = {}};
  longest.pieces.reserve(pieces.size());
  for (const Piece& piece : pieces) longest.pieces.push_back({.piece = piece, .offset = INT64_MAX});
  return entry_to_json(longest).size();
}

std::string to_json(const Manifest& manifest) {
  std::vector<std::string> entries;
  entries.reserve(manifest.files.size());
  for (const FileEntry& file : manifest.files) entries.push_back(entry_to_json(file));
  return to_json(manifest, entries);
}

std::string to_json(const Manifest& m, const std::vector<std::string>& entries) {
  std::size_t length = m.config.size() + 4096;
  for (const std::string& entry : entries) length += entry.size() + 8;
  std::string text;
  text.reserve(length);
  const auto add = [&](std::string_view key, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "  \"{}\": {},\n", key, value);
  };
  text += "{\n";
  add("format", json_text(kFormatName));
  add("format_version", std::to_string(kFormatVersion));
  add("step", std::to_string(m.step));
  add("run", json_text(m.run));
  add("created", json_text(m.created));
  add("version", json_text(m.version));
  add("layout",
      fmt::format(R"({{"dp": {}, "pp": {}, "tp": {}, "chunks": {}, "zero": {}}})", m.dp, m.pp, m.tp, m.chunks, m.zero));
  add("dtype", json_text(m.dtype));
  add("data", fmt::format(R"({{"samples": {}, "seed": {}, "source": {}{}{}}})", m.data.samples, m.data.seed,
                          json_text(m.data.source),
                          m.data.chain.empty() ? "" : fmt::format(R"(, "chain": {})", json_text(m.data.chain)),
                          m.data.rollbacks == 0 ? "" : fmt::format(R"(, "rollbacks": {})", m.data.rollbacks)));
  add("rng", json_text(m.rng));
  add("has_optimizer", m.has_optimizer ? "true" : "false");
  if (!m.matmul_choices.empty()) add("matmul_choices", json_text(m.matmul_choices));
  if (!m.instruction_set.empty()) add("instruction_set", json_text(m.instruction_set));
  add("config", json_text(m.config));
  text += "  \"files\": [";
  for (std::size_t i = 0; i < entries.size(); ++i) text += (i == 0 ? "\n    " : ",\n    ") + entries[i];
  text += "\n  ],\n";
  text += manifest_tail(xxh64(text));
  return text;
}

}  // namespace ms::ckpt
