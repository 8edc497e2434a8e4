# Between the install rules and the archives: CPack runs this over each part's tree. Debian wants configuration in /etc, a
# copyright and a changelog in each package, and compressed pages; and the same bytes from the same commit.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH where that is set
set(version ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
foreach(part IN LISTS CPACK_MS_PARTS)
  set(tree ${CPACK_TEMPORARY_DIRECTORY}/${part})
  if(EXISTS ${tree}/usr/etc)
    file(RENAME ${tree}/usr/etc ${tree}/etc)
    file(GLOB_RECURSE files RELATIVE ${tree} ${tree}/etc/*)
    list(TRANSFORM files PREPEND /)
    list(JOIN files "\n" files)
    file(WRITE ${CPACK_MS_CONTROL}/${part}/conffiles "${files}\n")
  endif()
  set(doc ${tree}/usr/share/doc/ms-${part})
  configure_file(${CPACK_MS_SOURCE}/packaging/deb/copyright ${doc}/copyright COPYONLY)
  file(WRITE ${doc}/changelog.Debian
       "ms (${version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of ms ${CPACK_PACKAGE_VERSION}.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  file(GLOB_RECURSE pages ${tree}/usr/share/man/*.[0-9])
  execute_process(COMMAND gzip -9nf ${doc}/changelog.Debian ${pages} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND chmod -R u=rwX,go=rX ${tree} COMMAND_ERROR_IS_FATAL ANY)
  if(DEFINED ENV{SOURCE_DATE_EPOCH})
    execute_process(COMMAND find ${tree} -exec touch -h -d @$ENV{SOURCE_DATE_EPOCH} {} +
                    COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
