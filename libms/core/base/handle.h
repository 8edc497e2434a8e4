// One move-only owner for every resource that is a value: file descriptors here, vendor handles in the modules
// that know them. Traits supply:  using Type;  static constexpr Type null();  static void destroy(Type) noexcept
// (never throws, never communicates: it is the failure path);  and, where closing can lose data,  static void
// close(Type)  (throws), which the success path calls explicitly.
#pragma once

#include <unistd.h>

#include <utility>

namespace ms {

template <class Traits>
class Handle {
 public:
  using Type = typename Traits::Type;

  Handle() = default;
  explicit Handle(Type value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  Type get() const { return value_; }
  explicit operator bool() const { return value_ != Traits::null(); }
  [[nodiscard]] Type release() { return std::exchange(value_, Traits::null()); }
  void reset(Type value = Traits::null()) noexcept {
    const Type old = std::exchange(value_, value);
    if (old != Traits::null()) Traits::destroy(old);
  }
  // Throws what Traits::close throws; the handle is empty either way. On an empty handle, nothing.
  void close() {
    if (*this) Traits::close(release());
  }

 private:
  Type value_ = Traits::null();
};

struct FdTraits {
  using Type = int;
  static constexpr int null() { return -1; }
  static void destroy(int fd) noexcept { ::close(fd); }
  static void close(int fd);  // Error("file.close", storage): on NFS this is where a full disk is told; see file.cpp
};
using UniqueFd = Handle<FdTraits>;

}  // namespace ms
