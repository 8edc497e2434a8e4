// The names of token files: what users write in their place, and what to do then.
#pragma once

#include <string>

#include "base/file.h"

namespace ms::data {

// Returns the prefix. Error("file.open", user): it is a directory, whose token files the hint lists.
std::string checked_token_prefix(std::string prefix);
// Maps PREFIX.idx or PREFIX.bin, of an object the copy of it in the cache. Error("file.*" or "data.object", user): it
// is not there; the hint says what a prefix is.
MappedFile map_token_file(const std::string& path);

}  // namespace ms::data
