// libms.so has no code of its own: it gathers the modules.
#include "base/version.h"

namespace ms {
const char* library_version() { return kVersion; }
}  // namespace ms
