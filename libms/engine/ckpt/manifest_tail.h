// The parts of the format that the writer and the reader of manifests share. The last line is the same in every
// version, so that a program can tell a damaged manifest from one that is newer than itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace ms::ckpt {

inline constexpr std::string_view kFormatName = "ms-checkpoint";

inline std::string manifest_tail(std::uint64_t hash) { return "  \"xxh64\": \"" + hash_hex(hash) + "\"}\n"; }

}  // namespace ms::ckpt
