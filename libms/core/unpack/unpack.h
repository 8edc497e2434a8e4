// The unpackers of gzip, zstd, xz and bzip2, as data streams by: several members or frames behind one another are one
// text, and no more than a window of it is in memory. Readers of data sets and of traces use it; only unpack.cpp knows
// the libraries.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace ms::unpack {

class Unpacker {
 public:
  struct Step {
    std::size_t taken = 0, made = 0;  // bytes of `from`, and of `to`
  };
  virtual ~Unpacker() = default;
  // With neither taken nor made, there was no input, or there is a problem.
  virtual Step unpack(std::span<const char> from, std::span<char> to) = 0;
  // Says what is wrong with the data, so that there is no more text; empty: nothing is.
  virtual std::string_view problem() const = 0;
  // Whether the packed data may end here.
  virtual bool complete() const = 0;
};

// The first bytes that tell the format.
inline constexpr std::size_t kPackedMagicBytes = 10;

// Returns the unpacker of data that begins so; nullptr: it is not packed by one of these.
std::unique_ptr<Unpacker> unpacker_of(std::string_view beginning);

}  // namespace ms::unpack
