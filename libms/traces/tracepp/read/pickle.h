// Converts Python pickles of plain data to JSON: None, booleans, numbers, text, lists, tuples and dicts, also shared by
// the memo. PyTorch pickles its Flight Recorder dumps so. Nothing is imported, called or built: a pickle that asks for
// it is refused. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ms::tracepp {

// A pickle that is larger than kMaxPickleBytes is refused: dumps have some hundred bytes an entry. So is one whose
// values take more memory, which may be 32 times its size, or whose shared values grow to more text.
inline constexpr std::size_t kMaxPickleBytes = std::size_t{128} << 20;
inline constexpr std::size_t kMaxPickleMemoryBytes = std::size_t{512} << 20;
inline constexpr std::size_t kMaxPickledJsonBytes = std::size_t{512} << 20;

// Returns whether bytes that begin like this are a pickle of protocol 2 to 5.
bool is_pickle(std::string_view beginning);

struct PickledJson {
  std::string text;         // one JSON value; keys that are numbers become text
  bool is_cut_off = false;  // the pickle ends early: `text` has what came before
};
// A pickle of nothing but the bytes of another pickle, or of a JSON document, stands for that: people pickle what
// _dump_nccl_trace() returns. Throws Error("trace.pickle", user) if the pickle is damaged, nests deeper than 64
// containers, or holds anything but plain data; the text names the opcode, what it would have imported, and the byte.
PickledJson pickle_to_json(std::string_view pickle, std::size_t max_json_bytes = kMaxPickledJsonBytes);

}  // namespace ms::tracepp
