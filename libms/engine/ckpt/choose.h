// From the path that a user gives to the checkpoint that is meant.
#pragma once

#include <string>
#include <vector>

#include "ckpt/directory.h"

namespace ms::ckpt {

// One checkpoint, whole or not: it has the name of one, or holds a manifest. Links are followed.
// Error("ckpt.path", user) where it is no directory.
bool is_checkpoint(const std::string& path);
// Error("ckpt.path", user) unless it is a directory, and not a checkpoint itself.
void require_directory(const std::string& path);
// `path` where it is a checkpoint, else the newest complete one of that directory.
// Error("ckpt.none", user) where there is none.
Found choose(const std::string& path);
// Every committed one of a directory, damaged by its sizes or not; `path` itself where it is a checkpoint.
// Error("ckpt.none", user) where there is none.
std::vector<Found> choose_all(const std::string& path);
// As choose(), where only a complete one is of use: Error("ckpt.incomplete", storage) says why it is not.
Found choose_complete(const std::string& path);
// A committed checkpoint of a directory: what pin and unpin are about. Error("ckpt.path", user).
struct Place {
  std::string dir;
  std::int64_t step = 0;
};
Place place_of(const std::string& path);

}  // namespace ms::ckpt
