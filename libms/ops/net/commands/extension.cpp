#include "net/commands/extension.h"

#include "base/library.h"

namespace ms::net {

const Extension& load_extension() {
  static const Extension& extension = load_library<Extension>(
      {"libms.so", "ms_netcheck_extension", "transports mpi and nccl are in libms.so, of the package ms-tools"});
  return extension;
}

}  // namespace ms::net
