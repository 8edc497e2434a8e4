// Limits by model of GPU, processor and card: limits.txt, with the source of each number. They count where the site's
// policy says nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ms {
class Sysroot;
}

namespace ms::diag {

struct KnownLimit {
  std::string model;  // a part of the name
  std::string what;   // a key of the policy's section [active]
  double least = -1;  // of a healthy one, or negative: nothing is known
  std::string source;
  int cores = 0;  // of a processor: a node with fewer, as a virtual machine, has not all of its memory
};

const std::vector<KnownLimit>& known_limits();

// The limit of the longest known name that `model` contains; `least` is negative where there is none.
KnownLimit known_limit(std::string_view model, std::string_view what);

// The model of the processor, as /proc/cpuinfo tells it; and the number of sockets, at least 1.
std::string cpu_model(const Sysroot& root);
int num_sockets(const Sysroot& root);

}  // namespace ms::diag
