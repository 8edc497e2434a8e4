// Converts Python pickles of plain data to JSON: None, booleans, numbers, text, lists, tuples and dicts, also shared by
// the memo. PyTorch pickles its Flight Recorder dumps so. Nothing is imported, called or built: a pickle that asks for
// it is refused. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ms::tracepp {

// A pickle whose shared values would grow beyond this is refused; so is one of more than kMaxPickleBytes.
inline constexpr std::size_t kMaxPickleBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxPickledJsonBytes = std::size_t{1} << 30;

// Returns whether bytes that begin like this are a pickle of protocol 2 to 5.
bool is_pickle(std::string_view beginning);

struct PickledJson {
  std::string text;         // one JSON value; keys that are numbers become text
  bool is_cut_off = false;  // the pickle ends early: `text` has what came before
};
// Throws Error("trace.pickle", user) if the pickle is damaged, nests deeper than 64 containers, or holds anything but
// plain data; the text names the opcode, what it would have imported, and the byte.
PickledJson pickle_to_json(std::string_view pickle, std::size_t max_json_bytes = kMaxPickledJsonBytes);

}  // namespace ms::tracepp
