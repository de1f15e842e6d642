# The program, from a checkout: pkgs.callPackage ./package.nix { }
{ lib, rustPlatform, installShellFiles }:
rustPlatform.buildRustPackage {
  pname = "dwell";
  version = (lib.importTOML ../../Cargo.toml).workspace.package.version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--package" "dwell" ];
  # They need network namespaces.
  doCheck = false;
  nativeBuildInputs = [ installShellFiles ];
  postInstall = ''
    $out/bin/dwell man --out man
    installManPage man/*.1
    for shell in bash zsh fish; do $out/bin/dwell completions $shell > dwell.$shell; done
    installShellCompletion dwell.{bash,zsh,fish}
    install -D -m 644 -t $out/share/doc/dwell LICENSE-*
  '';
  meta = {
    description = "Relay that compresses packets while they wait for a slow link";
    license = with lib.licenses; [ mit asl20 ];
    platforms = lib.platforms.linux;
    mainProgram = "dwell";
  };
}
