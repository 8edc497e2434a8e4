# What CPack makes of the install rules: every COMPONENT becomes one Debian package, ms-COMPONENT. ./bootstrap package calls
# it; packaging/ has what only packages need, and packaging/ms.spec and packaging/spack use the same rules.
set(MS_MAINTAINER "ms maintainers <maintainers@megascale-for-slurm.example>" CACHE STRING
    "who answers for packages: NAME <ADDRESS>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ms)
set(CPACK_PACKAGE_VENDOR "")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each part has its own
set(CPACK_PACKAGE_CONTACT "${MS_MAINTAINER}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_SET_DESTDIR ON)  # the install rules see the prefix that the files will have
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/ms_stage.cmake)
set(CPACK_COMPONENTS_ALL)
set(CPACK_MS_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_MS_CONTROL ${CMAKE_BINARY_DIR}/packaging/deb)  # what goes with the files, made for each part

set(same_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

# ms_part(NAME SECTION SUMMARY DESCRIPTION [KEY VALUE]...): the package ms-NAME, and keys of CPACK_DEBIAN_NAME_PACKAGE_*.
function(ms_part name section summary description)
  string(TOUPPER ${name} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${name})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ms-${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  while(ARGN)
    list(POP_FRONT ARGN key value)
    set(CPACK_DEBIAN_${upper}_PACKAGE_${key} "${value}" PARENT_SCOPE)
  endwhile()
  # Scripts of the maintainer, with the version of Slurm and the prefix in them.
  file(REMOVE_RECURSE ${CPACK_MS_CONTROL}/${name})
  file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/packaging/deb/ms-${name}.*)
  foreach(script IN LISTS scripts)
    get_filename_component(kind ${script} LAST_EXT)
    string(SUBSTRING ${kind} 1 -1 kind)
    configure_file(${script} ${CPACK_MS_CONTROL}/${name}/${kind} @ONLY)
    list(APPEND extra ${CPACK_MS_CONTROL}/${name}/${kind})
  endforeach()
  if(name MATCHES "^(diag|notify|ops)$")  # have configuration; ms_stage.cmake writes the list
    list(APPEND extra ${CPACK_MS_CONTROL}/${name}/conffiles)
  endif()
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${extra}" PARENT_SCOPE)
endfunction()

ms_part(diag admin "checks of nodes before, beside and after Slurm jobs"
  "ms-diag finds out whether a node is fit to train. It needs neither MPI nor oneDNN: the active checks of level 2 are in ms-tools, sending alerts in ms-notify, and the plugin that runs it before every job in ms-spank."
  SUGGESTS "ms-spank, ms-ops, ms-tools, ms-notify, ms-doc")
ms_part(ops admin "training jobs on Slurm clusters: driver, network checks, analysis of traces, loans of nodes"
  "ms-driver, ms-netcheck, ms-tracepp and ms-loan, for jobs of PyTorch and Megatron-LM as for those of ms-train. They need neither MPI nor oneDNN: the transports mpi and nccl of ms-netcheck are in ms-tools."
  RECOMMENDS "ms-diag ${same_version}" SUGGESTS "ms-tools, ms-doc")
ms_part(tools science "training of LLMs on Slurm clusters: trainer, token files and checkpoints"
  "ms-train, ms-data and ms-ckpt, and the library that they share, which also has the active checks of ms-diag."
  RECOMMENDS "ms-ops ${same_version}, ms-diag ${same_version}, openmpi-bin, libpmix-dev, libcurl4" SUGGESTS "ms-doc, ms-cuda, libxgboost0")
if(MS_CURL_ENABLED)
  ms_part(notify admin "alerts of ms-diag to Alertmanager and Slack"
    "What ms-diag notify loads, and a service that runs it as a user of its own."
    DEPENDS "ms-diag ${same_version}")
endif()
if(MS_SLURM_ENABLED)
  file(STRINGS ${MS_SLURM_INCLUDE}/slurm/slurm_version.h number REGEX "define SLURM_VERSION_NUMBER")
  string(REGEX MATCH "0x([0-9a-f][0-9a-f])([0-9a-f][0-9a-f])" number "${number}")
  math(EXPR major 0x${CMAKE_MATCH_1})
  math(EXPR minor 0x${CMAKE_MATCH_2})
  math(EXPR next "${minor} + 1")
  foreach(part minor next)
    if(${part} LESS 10)
      set(${part} 0${${part}})
    endif()
  endforeach()
  set(MS_SLURM_RELEASE ${major}.${minor})
  # Slurm loads a plugin of its own release alone (site.abi of ms-diag check-site).
  set(least "(>= ${MS_SLURM_RELEASE})")
  set(below "(<< ${major}.${next})")
  ms_part(spank admin "checks of nodes before Slurm jobs: the plugin for Slurm ${MS_SLURM_RELEASE}"
    "ms_spank.so has ms-diag look at every node of a job before it starts. It is built for Slurm ${MS_SLURM_RELEASE}, which loads no plugin of another release: beside another Slurm this package is not installed."
    DEPENDS "ms-diag ${same_version}, slurm-wlm-basic-plugins ${least} | slurm-smd ${least}, slurm-wlm-basic-plugins ${below} | slurm-smd ${below}")
endif()
if(MS_CUDA_ENABLED)
  ms_part(cuda science "training of LLMs on Slurm clusters: NVIDIA GPUs"
    "The CUDA device of ms-train and its kernels. It loads CUDA ${CUDAToolkit_VERSION_MAJOR}, cuDNN 9 and NCCL, which NVIDIA packages and this package does not depend on by name."
    DEPENDS "ms-tools ${same_version}")
endif()
ms_part(dev libdevel "training of LLMs on Slurm clusters: headers of libms"
  "The headers of libms.so, whose interface changes from version to version, and what pkg-config and CMake need to find them."
  DEPENDS "ms-tools ${same_version}, libfmt-dev")
ms_part(doc doc "training of LLMs on Slurm clusters: manuals and job scripts"
  "Manual pages, configurations of models and clusters, job scripts, alerts and a dashboard."
  ARCHITECTURE all SUGGESTS "ms-tools, ms-diag")

set(CPACK_MS_PARTS ${CPACK_COMPONENTS_ALL})
include(CPack)
