# cmake --install: headers, library, tool, find_package(Locus) and locus.pc.
include(CMakePackageConfigHelpers)

install(TARGETS locus EXPORT LocusTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/locus ${locus_generated}/locus
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT LocusTargets NAMESPACE locus::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Locus)
if(TARGET locus_cli)
  install(TARGETS locus_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(TARGET locus_ring)
  install(EXPORT LocusRingTargets NAMESPACE locus::
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Locus)
endif()
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# What a static library leaves to whoever links it, and what a shared one brings
# along: copies of the shared libraries that it was linked with, in a folder of
# its own, so that users of Locus need not install them.
set(locus_requires "")
set(locus_pc_requires "")
foreach(pair IN ITEMS hwy=libhwy fmt=fmt)
  string(REGEX MATCH "(.*)=(.*)" _ ${pair})
  set(name ${CMAKE_MATCH_1})
  set(pc ${CMAKE_MATCH_2})
  locus_fetched(fetched ${name}::${name})
  if(fetched)
    continue()
  endif()
  string(APPEND locus_requires "find_dependency(${name})\n  ")
  string(APPEND locus_pc_requires " ${pc}")
  get_target_property(kind ${name}::${name} TYPE)
  if(locus_type STREQUAL "SHARED_LIBRARY" AND kind STREQUAL "SHARED_LIBRARY"
      AND LOCUS_INSTALL_DEPENDENCIES)
    install(FILES $<TARGET_FILE:${name}::${name}>
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/locus
      RENAME $<TARGET_SONAME_FILE_NAME:${name}::${name}>)
    set_target_properties(locus PROPERTIES INSTALL_RPATH "$ORIGIN/locus")
  endif()
endforeach()

configure_package_config_file(cmake/LocusConfig.cmake.in LocusConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Locus)
write_basic_package_version_file(LocusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/LocusConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/LocusConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Locus)

# Relocatable: the prefix as seen from the directory of locus.pc.
file(RELATIVE_PATH pc_up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(LOCUS_PC_PREFIX "\${pcfiledir}/${pc_up}")
configure_file(cmake/locus.pc.in locus.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/locus.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
