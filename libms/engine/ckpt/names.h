// The names in a directory of checkpoints: what each says that its entry is. For directory.cpp, look.cpp, choose.cpp
// and file_writer.cpp; nobody else makes or reads such names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ms::ckpt {

enum class NameKind : std::uint8_t { step, pin, saving, deleting, damaged, set_aside, scratch, other };

// The prefix of a FileWriter's temporary files.
inline constexpr std::string_view kScratchPrefix = ".skeleton-";

struct Name {
  NameKind kind = NameKind::other;
  std::int64_t step = 0;    // not of set_aside and other
  std::int64_t number = 0;  // of set_aside, deleting and damaged: 1 and up
};
Name parse_name(std::string_view name);  // strict: what is not exactly of a form is other

std::string path_in(const std::string& dir, std::string_view name);

// The names in `dir`, sorted; none where it does not exist. Error("ckpt.list", storage).
std::vector<std::string> names_in(const std::string& dir);

}  // namespace ms::ckpt
