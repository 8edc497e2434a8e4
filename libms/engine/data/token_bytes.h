// The bytes of PREFIX.bin: a file, which is mapped, or an object of a store.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "data/cached_object.h"
#include "data/token_prefix.h"

namespace ms::data {

class TokenBytes {
 public:
  // Errors: as of map_token_file() and CachedObject.
  explicit TokenBytes(const std::string& path) {
    if (is_object(path)) {
      object_ = std::make_unique<CachedObject>(path);
    } else {
      file_ = map_token_file(path);
    }
  }
  // As those of MappedFile. Any thread.
  std::size_t size_bytes() const { return object_ ? object_->size_bytes() : file_.size_bytes(); }
  void read(std::size_t at, std::span<std::byte> out) const { object_ ? object_->read(at, out) : file_.read(at, out); }
  void will_need(std::size_t at, std::size_t size) const {
    object_ ? object_->will_need(at, size) : file_.will_need(at, size);
  }

 private:
  MappedFile file_;
  std::unique_ptr<CachedObject> object_;
};

}  // namespace ms::data
