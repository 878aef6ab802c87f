# cmake --install: headers, library, tool, find_package(Locus) and locus.pc.
include(CMakePackageConfigHelpers)

install(TARGETS locus EXPORT LocusTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/locus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT LocusTargets NAMESPACE locus::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Locus)
if(TARGET locus_cli)
  install(TARGETS locus_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(TARGET locus_ring)
  install(EXPORT LocusRingTargets NAMESPACE locus::
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Locus)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

get_target_property(locus_type locus TYPE)
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
